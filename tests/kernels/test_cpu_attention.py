from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from rerank.kernels import cpu_attention, interface
from rerank.kernels.dropout import STEPS, Dropout, draw, drop_, threshold, use_cheap_dropout
from rerank.kernels.flat import NAME
from rerank.kernels.interface import attention, use_attention
from tests.close import check_close, check_gradients, gradients_of
from tests.kernels import test_flat_modern as modern
from tests.kernels.flat import check, lost, network_of, padded


@given(count=st.integers(0, 70), steps=st.integers(1, 255), kind=st.sampled_from([torch.float32, torch.bfloat16]))
def test_elements_go_where_their_byte_is_below_the_threshold(count: int, steps: int, kind: torch.dtype) -> None:
    values, words = torch.randn(count).to(kind), draw(count)
    found = drop_(values.clone(), words, steps)
    expected = values.clone()
    expected[lost(words, count, steps)] = 0
    assert torch.equal(found, expected)


def test_rates_are_multiples_of_a_256th() -> None:
    assert [threshold(rate) for rate in (0.0, 1e-9, 0.1, 0.5, 0.999, 1.0)] == [0, 1, 26, 128, 255, 256]
    assert not Dropout(1.0)(torch.ones(1000)).any()


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_keeps_the_mean_and_its_gradient_has_the_same_zeros(rate: float) -> None:
    values = torch.rand(100_000).add_(1).requires_grad_()
    dropped = Dropout(rate)(values)
    dropped.sum().backward()
    assert values.grad is not None
    torch.testing.assert_close(values.grad * values.detach(), dropped.detach())
    share = float((dropped == 0).float().mean())
    exact = threshold(rate) / STEPS
    assert abs(share - exact) < 5 * (exact * (1 - exact) / len(values)) ** 0.5
    assert float(dropped.detach().mean()) == pytest.approx(float(values.detach().mean()), rel=0.02)
    bits = (dropped == 0).view(-1, 1000).float()
    assert abs(float(torch.corrcoef(torch.stack([bits[:-1].flatten(), bits[1:].flatten()]))[0, 1])) < 0.02


def test_dropout_does_nothing_in_evaluation_and_leaves_other_types_to_pytorch() -> None:
    network, values = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3)).eval(), torch.rand(1000)
    use_cheap_dropout(network)
    assert type(network[1]) is Dropout and network[1].p == 0.3 and not network[1].training
    assert torch.equal(Dropout(0.5).eval()(values), values)
    assert torch.equal(Dropout(0.0)(values), values)
    assert 300 < int((Dropout(0.5)(values.double()) == 0).sum()) < 700


MASKS = {
    "none": None,
    "padding": torch.arange(9)[None, None, None, :] < torch.tensor([9, 5, 1])[:, None, None, None],
    "pairs of tokens": torch.ones(3, 1, 9, 9, dtype=torch.bool).tril(3),
}


def states(kind: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.randn(3, 9, 2, 4).to(kind).transpose(1, 2).requires_grad_() for _ in range(3)]


class Layer(nn.Module):
    is_causal = False


def call(tensors: list[Tensor], mask: Tensor | None, dropout: float = 0.0) -> Tensor:
    return attention(Layer(), *tensors, mask, dropout=dropout, scaling=0.7)[0].transpose(1, 2)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets it do float32 without dropout, too; a list that grows by one with each call."""
    calls: list[int] = []
    apply = cpu_attention.Attention.apply
    monkeypatch.setattr(cpu_attention.Attention, "apply", lambda *args: calls.append(1) or apply(*args))
    monkeypatch.setattr(cpu_attention, "FASTER", (torch.bfloat16, torch.float32))
    return calls


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("elements", [1, 2 * 162, 10**6], ids=["one by one", "two by two", "together"])
@pytest.mark.parametrize("name", MASKS)
def test_without_dropout_it_is_pytorchs(name: str, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "ELEMENTS", elements)
    tensors, mask = states(), MASKS[name]
    ours = call(tensors, mask)
    theirs = F.scaled_dot_product_attention(*tensors, attn_mask=mask, scale=0.7)
    check(ours, theirs, tensors)


@pytest.mark.parametrize(
    ("kind", "dropout", "training", "ours"),
    [
        (torch.bfloat16, 0.0, False, True),
        (torch.bfloat16, 0.1, True, True),
        (torch.float32, 0.0, True, False),
        (torch.float32, 0.1, True, True),
        (torch.float32, 0.1, False, False),
        (torch.float64, 0.1, True, False),
    ],
)
def test_it_stands_in_where_pytorchs_is_slow(
    kind: torch.dtype, dropout: float, training: bool, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_attention.Attention, "apply", lambda query, *_: query)
    tensors = states(kind)
    rate = dropout if training else 0.0  # as Transformers passes it
    found, _ = attention(Layer().train(training), *tensors, None, dropout=rate)
    assert torch.equal(found, tensors[0].transpose(1, 2)) == ours


@pytest.mark.parametrize(
    "asked",
    [
        {"attention_mask": torch.zeros(1, 2, 9, 9, dtype=torch.bfloat16)},
        {"attention_mask": torch.ones(9, 9, dtype=torch.bool)},
        {"is_causal": True},
        {"position_bias": torch.zeros(1, 2, 9, 9, dtype=torch.bfloat16)},
        {"dropout": 1.0},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_what_it_does_not_know_is_left_to_pytorch(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_attention.Attention, "apply", lambda *_: pytest.fail("it took over"))
    tensors = [tensor.detach() for tensor in states(torch.bfloat16)]
    attention(Layer(), *tensors, **({"attention_mask": None} | asked))
    attention(nn.Module(), *tensors, None)  # causal unless it says that it is not
    monkeypatch.setattr(cpu_attention, "LARGEST", 2 * 9 * 9 - 1)
    attention(Layer(), *tensors, None)


def test_under_autocast_types_may_differ() -> None:
    """As in rotary models, whose queries and keys are float32."""
    query, key, value = states()
    with torch.autocast("cpu", torch.bfloat16):
        found = call([query, key, value.bfloat16()], None, dropout=0.1)
    assert found.dtype == torch.bfloat16
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(found.sum(), [query, key, value]))


@pytest.mark.parametrize("kind", ["bert", "distilbert", "modernbert"])
def test_models_score_and_learn_as_before(kind: str, always: list[int]) -> None:
    network = modern.network_of("mean") if kind == "modernbert" else network_of(kind)
    batch, exact, found = padded([9, 4, 7], types=kind == "bert"), copy.deepcopy(network).double(), []
    use_cheap_dropout(network)
    assert use_attention(network)
    for model in (network, exact):
        scores = model(**batch).logits
        scores.square().sum().backward()
        found.append((scores, gradients_of(model)))
    assert len(always) == network.config.num_hidden_layers, "each layer"
    check_close(found[0][0], found[1][0])
    check_gradients(found[0][1], found[1][1])
    assert NAME not in network.config.to_json_string()
