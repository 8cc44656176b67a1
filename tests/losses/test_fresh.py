"""Direct metrics learn from the scores of a fresh model, which lie close together, with and without a cut-off."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rerank.losses import DirectMetric
from rerank.relaxations import Approx, FastSoftSort, NeuralSort, Relaxation, SoftSort, TwinSigmoid, load_all

MEASURES = ["nDCG@10", "nDCG", "P@10", "AP@10", "AP", "RR@10", "RR", "nERR@10", "nDCG(dcg='exp-log2')@10"]
ADAPTIVE = {"Approx": "alpha", "TwinSigmoid": "alpha", "SoftSort": "tau", "FastSoftSort": "strength"}
OURS = {name: kind(**({ADAPTIVE[name]: "adaptive"} if name in ADAPTIVE else {})) for name, kind in load_all().items()}


def fresh(spread: float = 0.003, count: int = 60, size: int = 150) -> tuple[Tensor, Tensor]:
    """Lists with four relevant documents in random places."""
    scores = spread * torch.randn(count, size, generator=torch.Generator().manual_seed(2))
    labels = torch.zeros(count, size)
    labels[:, :4] = 1
    return scores.requires_grad_(), labels


def gradient_of(loss: DirectMetric, scores: Tensor, labels: Tensor) -> Tensor:
    value = loss(scores, labels, seeds=torch.arange(len(scores)))
    return torch.autograd.grad(value, scores)[0]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("nDCG@10", "AP", "RR@10") else pytest.mark.slow) for name in MEASURES],
)
@pytest.mark.parametrize("relaxation", OURS.values(), ids=OURS)
def test_every_list_teaches(relaxation: Relaxation, name: str) -> None:
    """Nearly all have a gradient of some size beside the largest, and it lifts their relevant documents."""
    scores, labels = fresh()
    gradient = gradient_of(DirectMetric(name, relaxation, reduction="sum"), scores, labels)
    norms = gradient.norm(dim=1)
    assert float((norms > 1e-5 * norms.max()).float().mean()) >= 0.95
    assert (gradient.sum(dim=1).abs() <= 1e-3 * norms).all()  # no list lifts all of its scores
    assert float((gradient[:, :4].sum(dim=1) < 0).double().mean()) >= 0.95


@pytest.mark.parametrize("relaxation", [Approx(), FastSoftSort()], ids=repr)
def test_sigmoids_over_ranks_do_not(relaxation: Relaxation) -> None:
    """The papers' formulas, which are the defaults: every rank is near 75, and a cut-off of 10 far away."""
    scores, labels = fresh()
    assert not gradient_of(DirectMetric("nDCG@10", relaxation), scores, labels).any()


def test_soft_sort_of_a_wide_temperature_draws_documents_to_the_middle_of_the_discount() -> None:
    """Of one relevant document, at each rank q in turn, to first order in 1 / tau; by the spread it draws them up.

    E[r, q] = (1 - |s_r - s_q| / tau + mean_j |s_r - s_j| / tau) / N, whose derivative in s_q is summed over D_r.
    """
    size, tau = 150, 1e6
    scores = torch.distributions.Normal(0.0, 1.0).icdf((torch.arange(size, 0, -1, dtype=torch.float64) - 0.5) / size)
    scores = scores.repeat(size, 1).requires_grad_()
    discounts = 1 / (torch.arange(size) + 2).log2().double()
    before, after = discounts.cumsum(0) - discounts, discounts.flip(0).cumsum(0).flip(0) - discounts
    own = discounts * (size - 1 - 2 * torch.arange(size))
    expected = ((before - after) * (1 - 1 / size) + own / size) / (size * tau)

    def drawn_up(relaxation: Relaxation) -> Tensor:
        return -gradient_of(DirectMetric("nDCG", relaxation, reduction="sum"), scores, torch.eye(size)).diagonal()

    torch.testing.assert_close(drawn_up(SoftSort(tau=tau)), expected, rtol=1e-4, atol=1e-12)
    assert abs(int((expected < 0).sum()) - 57) <= 1  # half of the discount lies on either side of the 57th rank
    assert (drawn_up(SoftSort("adaptive"))[:-10] > 0).all()


def test_neural_sort_of_scores_far_from_zero() -> None:
    """The gradient in float32 is that in float64, wherever the scores lie."""
    scores = torch.randn(4, 100, generator=torch.Generator().manual_seed(0)) + 1000
    labels = (torch.arange(100) < 5).float().expand(4, 100)
    found = []
    for dtype in (torch.float32, torch.float64):
        leaf = scores.to(dtype).requires_grad_()
        found.append(gradient_of(DirectMetric("nDCG", NeuralSort()), leaf, labels).double())
    assert float((found[0] - found[1]).norm() / found[1].norm()) < 1e-3


@pytest.mark.parametrize("name", ["nDCG(dcg='exp-log2')", "nDCG(dcg='exp-log2')@2", "nERR", "nERR(max_rel=300)@2"])
@pytest.mark.parametrize("relaxation", OURS.values(), ids=OURS)
def test_grades_whose_gain_is_not_finite(relaxation: Relaxation, name: str) -> None:
    scores = torch.tensor([[0.3, 0.2, 0.1]], requires_grad=True)
    for grades in ([0, 128, 5], [500, 200, 0], [1000, 1000, 1000]):
        value = DirectMetric(name, relaxation)(scores, torch.tensor([grades]))
        assert value.isfinite() and torch.autograd.grad(value, scores)[0].isfinite().all()


def test_nerr_of_a_high_max_rel_is_right_in_float32() -> None:
    """2^-150 is not a float32; lists far below max_rel have the nERR of any other high one."""
    scores, labels = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1, 4, 0]])
    found = [DirectMetric(f"nERR(max_rel={top})", TwinSigmoid())(scores, labels) for top in (40, 150, 30000)]
    assert 1 - float(found[0]) == pytest.approx((1 + 15 / 2) / (15 + 1 / 2), abs=1e-6)
    assert found[0] == found[1] == found[2]
