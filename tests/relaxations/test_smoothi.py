"""SmoothI against the claims of its paper."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rerank.relaxations import SmoothI


def error(scores: list[float], k: int, relaxation: SmoothI) -> float:
    """The largest |E - I| over the first k ranks of positive scores, as the theorem has them.

    SmoothI subtracts the smallest score, so one more document, of score 0, makes the others' S the given scores; that
    document competes as well, which the bounds below count.
    """
    values = torch.tensor([[*scores, 0.0]], dtype=torch.float64)
    rows = relaxation.indicators(values, torch.ones_like(values, dtype=torch.bool), k)[0]
    exact = torch.zeros_like(rows)
    exact[range(k), values[0].argsort(descending=True, stable=True)[:k]] = 1
    return float((rows - exact).abs().max())


def margin(scores: list[float]) -> tuple[float, float]:
    """The smallest score, and how far the closest pair is apart: ``min(1, (beta - 1) / 2)``."""
    levels = sorted(set(scores))
    beta = min((b / a for a, b in pairwise(levels)), default=math.inf)
    return levels[0], min(1, (beta - 1) / 2)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.5, 20), min_size=2, max_size=8, unique=True),
    st.integers(2, 5),
    st.sampled_from([0.05, 0.1, 0.25, 0.4]),
    st.floats(1.001, 3),
    st.integers(0, 50),
)
def test_theorem_2_with_ties(scores: list[float], k: int, delta: float, slack: float, ties: int) -> None:
    """A generalisation: with N competitors in place of K - 1 the bound allows ties below rank K.

    In the paper's form: alpha > 2^(K-1) (ln N - ln gamma) / (S_min m), error at most N exp(-alpha S_min m / 2^(K-1)),
    with m = min(1, (beta - 1)/2) and N the number of documents beside the one at the rank.
    """
    k = min(k, len(scores) - (ties > 0))
    scores = [*scores, *[min(scores)] * ties]
    smallest, apart = margin(scores)
    if k < 2 or apart < 1e-3:
        return
    beta = 1 + 2 * apart  # at most the true one, which is all that the proof needs
    others = len(scores)  # the document of score 0 makes up for the one at the rank
    c = ((beta + 1) / 2) ** (1 / (k - 1))
    gamma = min(delta, 0.5 - delta, (1 - delta) * (c - 1) / (c + 1))
    share = apart / 2 ** (k - 1)
    alpha = slack * math.log(others / gamma) / (smallest * share)
    bound = others * math.exp(-alpha * smallest * share)
    assert bound < gamma
    assert error(scores, k, SmoothI(alpha, delta)) <= bound * (1 + 1e-9) + 1e-12


def normal(size: int, lists: int = 200) -> Tensor:
    return torch.randn(lists, size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))


@pytest.mark.parametrize(("dtype", "late", "close"), [(torch.float64, 300, 1e-9), (torch.float32, 150, 1e-3)])
@pytest.mark.parametrize("delta", [0.1, 0.8])
def test_expected_values_are_exact_at_late_ranks(dtype: torch.dtype, late: int, close: float, delta: float) -> None:
    """Long lists, one with pads: the recursion and its gradient down to the last rank, also weighed at late ranks."""
    size = 400
    mask = torch.ones(2, size, dtype=torch.bool)
    mask[1, 350:] = False
    scores = normal(size, 2).to(dtype).masked_fill(~mask, 0.0).requires_grad_()
    values = torch.arange(size, dtype=dtype).remainder(5).expand(2, size) * mask
    row, ranks = scores - scores.masked_fill(~mask, math.inf).amin(dim=1, keepdim=True), []
    kept = torch.ones_like(scores)
    for _ in range(size):
        rows = (row * kept).masked_fill(~mask, -math.inf).softmax(dim=1)
        ranks.append((rows * values).sum(dim=1))
        kept = kept * (1 - rows.detach() - delta)
    expected = torch.stack(ranks, dim=1)
    relaxation = SmoothI(1, delta)
    torch.testing.assert_close(relaxation.expected(scores, values, mask, size), expected, rtol=close, atol=0)
    for first in (0, late):
        weights = (torch.arange(size) >= first) * torch.linspace(2, 1, size, dtype=dtype).expand(2, size)
        (true,) = torch.autograd.grad((weights * expected).sum(), scores, retain_graph=True)
        for found in (
            (weights * relaxation.expected(scores, values, mask, size)).sum(),
            relaxation.weighted(scores, values, weights, mask).sum(),
        ):
            (gradient,) = torch.autograd.grad(found, scores)
            assert (gradient - true).abs().max() <= close * true.abs().max(), first
