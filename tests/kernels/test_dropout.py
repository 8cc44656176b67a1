from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rerank.kernels.dropout import STEPS, Dropout, draw, drop_, threshold, use_cheap_dropout
from tests.kernels.flat import lost


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
