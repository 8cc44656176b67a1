"""Chunks without padding give the scores and gradients of Transformers' padded forward pass."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rerank.kernels import cpu_attention, flat_attention
from rerank.kernels.dropout import draw
from rerank.kernels.flat import KINDS, OWN_CODE, reads_flat
from rerank.kernels.flat_attention import AttentionCall, Sequences, attend
from tests.kernels.flat import check, check_flat, formula, lost, network_of, padded, rows_of_layers

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=9)


@pytest.mark.parametrize("kind", [*KINDS, *OWN_CODE])
@given(lengths=LENGTHS, holes=st.booleans())
def test_flat_encoders_equal_transformers(kind: str, lengths: list[int], holes: bool) -> None:
    network = network_of(kind)
    assert reads_flat(network)
    check_flat(network, padded(lengths, holes))


def test_roberta_positions_skip_padding_tokens_within_a_text() -> None:
    network, batch = network_of("roberta"), padded([6, 9])
    batch["input_ids"][1, 4] = 1
    check_flat(network, batch)


def test_layers_compute_no_padding_and_the_last_one_only_cls() -> None:
    for name, count in rows_of_layers(network_of("bert"), padded([3, 9, 1, 4])):
        only_cls = "layer.1" in name and "key" not in name and "value" not in name
        assert count == (4 if only_cls or ".layer." not in name else 17), name


def test_other_architectures_stay_unchanged() -> None:
    assert not reads_flat(network_of("mpnet"))
    assert not reads_flat(torch.nn.Linear(1, 1))


def states(total: int, kind: torch.dtype = torch.float32, size: float = 1.0) -> list[Tensor]:
    return [(size * torch.randn(total, 3, 4)).to(kind).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize(
    ("way", "window", "causal"),
    [
        ("products", None, False),
        *((way, *near) for near in product([None, 3], [False, True]) for way in ("pytorch", "padded")),
    ],
)
@settings(max_examples=30)
@given(lengths=LENGTHS, first=st.booleans())
def test_attention_equals_its_formula(
    way: str, window: int | None, causal: bool, lengths: list[int], first: bool
) -> None:
    """Encoders compute all tokens or only the first of each text; decoders compute all."""
    first &= not causal
    sequences = Sequences.of(lengths)
    states = [torch.randn(sum(lengths), heads, 8).requires_grad_() for heads in ((4, 2, 2) if causal else (4, 4, 4))]
    expected = formula(states, sequences, window, causal)
    asked, expected = (x[sequences.first] if first else x for x in (states[0], expected))
    call = AttentionCall(asked, *states[1:], sequences, 0.7, 0.0, first, window, causal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_attention, "FASTER", (torch.float32,) if way == "products" else ())
        patch.setattr(flat_attention, "ELEMENTS", 100)
        check(flat_attention._padded(call) if way == "padded" else attend(call), expected, states)


@given(lengths=LENGTHS)
def test_attention_with_dropout_equals_its_formula(lengths: list[int]) -> None:
    tensors, sequences = states(sum(lengths)), Sequences.of(lengths)
    torch.manual_seed(3)
    ours = attend(AttentionCall(*tensors, sequences, 0.7, 0.25, False))
    torch.manual_seed(3)
    gone = []
    for run in sequences.runs(flat_attention.ELEMENTS // 3):
        shape = (run.count, 3, run.length, run.length)
        gone += list(lost(draw(math.prod(shape)), math.prod(shape), 64).view(shape))
    dropped = torch.stack([torch.block_diag(*head) for head in zip(*gone, strict=True)])
    check(ours, formula(tensors, sequences, gone=dropped), tensors)


@pytest.mark.parametrize("size", [1.0, 8.0, 30.0], ids=["usual", "large", "beyond the exponential"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_attention_is_softmax_for_products_of_any_size(size: float, sign: float) -> None:
    """Exponentials neither overflow nor vanish, however large or small the products of a query are."""
    query, key, value = (state.detach() for state in states(10, size=size))
    key = sign * query.mean(0) + 0.1 * key
    tensors = [query.requires_grad_(), key.requires_grad_(), value.requires_grad_()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_attention, "FASTER", (torch.float32,))
        sequences = Sequences.of([10])
        check(attend(AttentionCall(*tensors, sequences, 0.7, 0.0, False)), formula(tensors, sequences), tensors)


def test_attention_in_bf16_is_as_exact_as_pytorchs() -> None:
    lengths, exact = [40, 40, 25], states(105, torch.float64)
    rounded = [tensor.detach().bfloat16().requires_grad_() for tensor in exact]
    whole = torch.autograd.grad(formula(exact, Sequences.of(lengths)).square().sum(), exact)

    def error(output: Tensor) -> float:
        found = torch.autograd.grad(output.float().square().sum(), rounded)
        return max(float((a - b).norm() / b.norm()) for a, b in zip(found, whole, strict=True))

    def theirs(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        parts = zip(*(tensor.split(lengths) for tensor in (query, key, value)), strict=True)
        return torch.cat(
            [F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in p), scale=0.7).transpose(0, 1) for p in parts]
        )

    found = attend(AttentionCall(*rounded, Sequences.of(lengths), 0.7, 0.0, False))
    assert error(found) < 1.5 * error(theirs(*rounded))
