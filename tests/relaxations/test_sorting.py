"""NeuralSort, SoftSort, OptimalTransport and FastSoftSort: against their definitions, and what is said of them."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from torch import Tensor

from rerank.losses import DirectMetric
from rerank.relaxations import Batch, FastSoftSort, NeuralSort, OptimalTransport, SoftSort
from rerank.relaxations.fastsoftsort import (
    antitonic_kl,
    antitonic_l2,
    antitonic_minimax,
    block_ids,
    block_means,
    block_ratios,
)
from rerank.relaxations.neuralsort import total_distances

numbers = st.lists(st.floats(-50, 50) | st.integers(-3, 3).map(float), min_size=1, max_size=12)


def every(scores: Tensor) -> Tensor:
    return torch.ones_like(scores, dtype=torch.bool)


@settings(max_examples=60, deadline=None)
@given(numbers, st.integers(0, 4))
def test_total_distances_with_ties_and_pads(values: list[float], pads: int) -> None:
    scores = torch.tensor([values + [0.0] * pads], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True] * len(values) + [False] * pads])
    real = scores[:, : len(values)]
    plain = (real[:, :, None] - real[:, None, :]).abs().sum(dim=2)
    found = total_distances(scores, mask)[:, : len(values)]
    torch.testing.assert_close(found, plain, atol=1e-9, rtol=1e-9)
    upstream = torch.linspace(-1, 2, len(values), dtype=torch.float64)[None]
    slopes = [torch.autograd.grad(value, scores, upstream)[0] for value in (found, plain)]
    torch.testing.assert_close(*slopes)


def test_lists_stop_one_by_one() -> None:
    """A list that has converged stays as it is, however long others in its batch take."""
    easy, hard = torch.tensor([9.0, 5.0, 1.0]), torch.tensor([0.0, 0.3, 0.31])
    both, mask = torch.stack([easy, hard]).double(), torch.ones(2, 3, dtype=torch.bool)
    relaxation = NeuralSort(1.0, sinkhorn=200, tolerance=1e-3)
    together = relaxation.indicators(both, mask, 3)
    for row in range(2):
        assert torch.equal(relaxation.indicators(both[row : row + 1], mask[:1], 3)[0], together[row])
    assert not torch.allclose(together, NeuralSort(1.0, sinkhorn=200, tolerance=0).indicators(both, mask, 3), atol=1e-9)


@pytest.mark.parametrize(
    "relaxation",
    [NeuralSort(0.5), NeuralSort(0.5, sinkhorn=0), SoftSort(0.5), OptimalTransport(), OptimalTransport(0.02)],
    ids=repr,
)
def test_indicators_are_distributions_and_ties_share_their_ranks(relaxation: NeuralSort) -> None:
    scores = torch.tensor([[2.0, 0.5, 2.0, -1.0], [0.0, 1.0, 2.0, 3.0]], dtype=torch.float64)
    rows = relaxation.indicators(scores, every(scores), 4)
    assert (rows >= 0).all()
    torch.testing.assert_close(rows.sum(dim=2), torch.ones(2, 4, dtype=torch.float64))
    torch.testing.assert_close(rows[0, :, 0], rows[0, :, 2])
    values = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        relaxation.expected(scores, values, every(scores), 3), (rows[:, :3] @ values[:, :, None])[..., 0]
    )
    torch.testing.assert_close(relaxation.indicators(scores, every(scores), 2), rows[:, :2])


@settings(max_examples=60, deadline=None)
@given(numbers)
def test_antitonic_regression_two_ways(values: list[float]) -> None:
    target = torch.tensor([values], dtype=torch.float64)
    fitted = antitonic_l2(target, every(target))
    torch.testing.assert_close(antitonic_minimax(block_means(target), every(target)), fitted)
    assert (fitted.diff(dim=1) <= 0).all()
    same = torch.tensor(isotonic_regression(values, increasing=False).blocks).diff()
    assert int(block_ids(fitted).max()) + 1 <= len(same)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-300, 300), min_size=1, max_size=12))
def test_antitonic_kl_two_ways(values: list[float]) -> None:
    logits = torch.tensor([sorted(values, reverse=True)], dtype=torch.float64)
    weights = torch.arange(len(values), 0, -1, dtype=torch.float64)[None]
    fitted = antitonic_kl(logits, weights, every(logits))
    torch.testing.assert_close(antitonic_minimax(block_ratios(logits, weights), every(logits)), fitted)


def _ranks(relaxation: FastSoftSort, scores: Tensor) -> Tensor:
    rows = torch.arange(scores.shape[1]).expand(scores.shape)
    return relaxation.ranks(Batch(scores, torch.zeros_like(scores), every(scores), rows))


@pytest.mark.parametrize("regularization", ["l2", "kl"])
def test_soft_ranks_go_from_exact_ones_with_ties_to_all_alike(regularization: str) -> None:
    tied = torch.tensor([[1.0, 7.0, 1.0]], dtype=torch.float64)
    sharp, smooth = (_ranks(FastSoftSort(strength, regularization), tied)[0] for strength in (1e-3, 1e6))
    assert sharp.tolist() == pytest.approx([2.5, 1, 2.5], abs=1e-6)
    assert smooth.tolist() == pytest.approx([2, 2, 2], abs=1e-4)


def test_draws_belong_to_the_seed_and_without_noise_are_none() -> None:
    scores = torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
    labels, seeds = torch.arange(27).reshape(3, 9) % 3, torch.tensor([5, 6, 5])
    noisy, silent, plain = (
        DirectMetric("nDCG", NeuralSort(**settings), reduction="none")
        for settings in ({"samples": 4, "beta": 1.0}, {"samples": 3, "beta": 0.0}, {})
    )
    assert not torch.allclose(noisy(scores, labels, seeds=seeds), noisy(scores, labels, seeds=seeds + 1), atol=1e-4)
    torch.testing.assert_close(silent(scores, labels), plain(scores, labels))


def test_settings_that_do_not_go_together_are_refused() -> None:
    for wrong in ({"sinkhorn": -1}, {"sinkhorn": 0, "transposed": True}):
        with pytest.raises(ValueError, match="sinkhorn"):
            NeuralSort(**wrong)
    with pytest.raises(ValueError, match="strength"):
        FastSoftSort(strength="spread", beta=5.0)


def test_long_lists_are_computed_in_parts() -> None:
    """Lists so long that a batch is cut, for matrices to stay in cache: the same as one by one, none and some."""
    loss = DirectMetric("nDCG", NeuralSort(sinkhorn=2), reduction="none")
    scores = torch.randn(3, 1100, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = (torch.arange(3 * 1100).reshape(3, 1100) % 7 == 0).float()
    (together,) = torch.autograd.grad(loss(scores, labels).sum(), scores)
    for row in range(3):
        one = scores[row : row + 1].detach().requires_grad_()
        (alone,) = torch.autograd.grad(loss(one, labels[row : row + 1]).sum(), one)
        torch.testing.assert_close(together[row], alone[0])
    assert loss(scores[:0], labels[:0]).shape == (0,)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=5), st.sampled_from([0.1, 1.0, 10.0]))
def test_soft_ranks_are_the_projection_on_the_permutahedron(values: list[float], strength: float) -> None:
    """A point of a convex set is the nearest one if no corner lies further in the direction of the target."""
    scores, size = torch.tensor([values], dtype=torch.float64), len(values)
    ranks = _ranks(FastSoftSort(strength), scores)[0]
    every_rank = torch.arange(1, size + 1, dtype=torch.float64)
    assert (ranks.sort().values.cumsum(0) >= every_rank.cumsum(0) - 1e-8).all(), "within the permutahedron"
    assert float(ranks.sum()) == pytest.approx(float(every_rank.sum()))
    corners = torch.tensor(list(itertools.permutations(every_rank.tolist())), dtype=torch.float64)
    assert ((corners - ranks) @ (-scores[0] / strength - ranks) <= 1e-7).all()
