"""Products whose bias is added where they are computed: the same numbers, only where they were asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import rerank.kernels.products as products
from rerank.kernels.implementations import Implementations, use_implementations
from rerank.kernels.products import Linear, product, scoring_products, use_products, works
from rerank.models.text.cross_encoder import CrossEncoder

needs_it = pytest.mark.skipif(not works(), reason="this PyTorch has no such operation")


@needs_it
@given(rows=st.integers(1, 70), width=st.integers(1, 65), out=st.integers(1, 65), seed=st.integers(0, 99))
def test_a_product_is_pytorchs_up_to_one_rounding(rows: int, width: int, out: int, seed: int) -> None:
    """Against float64: nearer than half a unit of bf16's last place, and what float32 sums lose."""
    drawn = torch.Generator().manual_seed(seed)
    states, weight, bias = (torch.randn(*s, generator=drawn).bfloat16() for s in ((rows, width), (out, width), (out,)))
    exact = nn.functional.linear(states.double(), weight.double(), bias.double())
    with torch.inference_mode():
        found = product(states, weight, bias)
    assert found.dtype == torch.bfloat16
    size = nn.functional.linear(states.double().abs(), weight.double().abs(), bias.double().abs())
    assert ((found.double() - exact).abs() <= exact.abs() * 2**-8 + size * 2**-16).all()


@needs_it
def test_only_scoring_in_bf16_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8, bias=False))
    use_products(network)
    assert type(network[0]) is Linear and type(network[1]) is nn.Linear
    for ways in (None, Implementations.all("torch"), Implementations.all("own")):
        use_implementations(network, ways)
        with scoring_products(network.modules()):
            half = network[0].in_bf16
            assert (half is None) == (ways != Implementations.all("own"))
    assert half is not None and [tensor.dtype for tensor in half] == [torch.bfloat16] * 2 and network[0].in_bf16 is None

    calls = []
    monkeypatch.setattr(products, "product", lambda *given: calls.append(given) or product(*given))
    states = torch.randn(3, 8)
    plain = network(states)
    with torch.autocast("cpu", torch.bfloat16):
        network(states)  # a training's forward pass
        assert not calls
        with torch.inference_mode(), scoring_products(network.modules()):
            found = network[0](states)
            with torch.autocast("cpu", enabled=False):
                full = network(states)  # as heads are computed
    assert len(calls) == 1 and found.dtype == torch.bfloat16
    assert torch.equal(full, plain)
    torch.testing.assert_close(found.float(), network[0](states), atol=0.02, rtol=0.02)


@needs_it
def test_scores_follow_weights_that_change(tiny_model: Path) -> None:
    """Nothing is kept from one pass of scoring to the next."""
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    model.settle("bf16", "own")
    pairs = [("wing", "a wing gives lift"), ("jet", "a jet engine burns fuel")]
    before = model.text_scores(pairs, precision="bf16")
    with torch.no_grad():
        for name, parameter in model.network.named_parameters():
            if "dense" in name:
                parameter.data = parameter.data * 1.5
    after = model.text_scores(pairs, precision="bf16")
    model.settle("bf16", "torch")
    plain = model.text_scores(pairs, precision="bf16")
    assert abs(after - plain).max() < 0.05 * abs(after - before).max()


def test_where_the_operation_is_missing_nothing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "product", lambda *_: (_ for _ in ()).throw(AttributeError("moved")))
    works.cache_clear()
    try:
        network = nn.Sequential(nn.Linear(8, 8))
        use_products(network)
        assert type(network[0]) is nn.Linear
    finally:
        works.cache_clear()
