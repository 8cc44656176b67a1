"""DirectMetric: a gradient by hand, settings, and gradients on the nearly equal scores of a new model."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rerank.losses import DirectMetric
from rerank.relaxations import NeuralSort, Relaxation, TwinSigmoid
from tests.losses.kinds import RELAXATIONS

MEASURES = ["nDCG@10", "nDCG", "P@10", "AP@10", "AP", "RR@10", "RR", "nERR@10", "nDCG(dcg='exp-log2')@10"]
ADAPTIVE = {"Approx": "alpha", "TwinSigmoid": "alpha", "SoftSort": "tau", "FastSoftSort": "strength"}
OURS = {name: kind(**({ADAPTIVE[name]: "adaptive"} if name in ADAPTIVE else {})) for name, kind in RELAXATIONS.items()}


def test_twin_sigmoid_gradient_is_the_papers() -> None:
    """Two documents, the relevant one below: Yu's Eqs 17, 18, 20, 21 and 32 (with 1/ln 2) for each gradient."""
    gap = 1.5
    z = 1 / (1 + math.exp(gap))  # sigmoid of s_i - s_j for the relevant document i
    weights = {1: z * (1 - z), 2: z * (1 - z), 3: 2 * (1 - z)}
    by_rank = 1 / (math.log(2) * 3 * math.log2(3) ** 2)  # of 1 - nDCG, at rank 2, with IDCG 1
    for kind, weight in weights.items():
        scores = torch.tensor([[0.0, gap]], dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(
            DirectMetric("nDCG", TwinSigmoid(kind, alpha=1))(scores, torch.tensor([[1, 0]])), scores
        )
        expected = torch.tensor([[-by_rank * weight, by_rank * weight]], dtype=torch.float64)
        torch.testing.assert_close(gradient, expected)


def test_transposed_neural_sort_refuses_other_measures_than_ndcg() -> None:
    for name in ("AP", "P@5", "RR", "nERR@5"):
        with pytest.raises(ValueError, match=rf"transposed=True.*nDCG, not for {name}"):
            DirectMetric(name, NeuralSort(transposed=True))


def fresh() -> tuple[Tensor, Tensor]:
    """Lists with four relevant documents in random places."""
    scores = 0.003 * torch.randn(60, 150, generator=torch.Generator().manual_seed(2))
    labels = torch.zeros(60, 150)
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
def test_losses_have_a_gradient_on_scores_of_a_new_model(relaxation: Relaxation, name: str) -> None:
    """Nearly all have a gradient of some size beside the largest, and it lifts their relevant documents."""
    scores, labels = fresh()
    gradient = gradient_of(DirectMetric(name, relaxation, reduction="sum"), scores, labels)
    norms = gradient.norm(dim=1)
    assert float((norms > 1e-5 * norms.max()).float().mean()) >= 0.95
    assert (gradient.sum(dim=1).abs() <= 1e-3 * norms).all()  # no list lifts all of its scores
    assert float((gradient[:, :4].sum(dim=1) < 0).double().mean()) >= 0.95


def test_neural_sort_gradient_is_exact_far_from_zero() -> None:
    """The gradient in float32 is that in float64, wherever the scores lie."""
    scores = torch.randn(4, 100, generator=torch.Generator().manual_seed(0)) + 1000
    labels = (torch.arange(100) < 5).float().expand(4, 100)
    found = []
    for dtype in (torch.float32, torch.float64):
        leaf = scores.to(dtype).requires_grad_()
        found.append(gradient_of(DirectMetric("nDCG", NeuralSort()), leaf, labels).double())
    assert float((found[0] - found[1]).norm() / found[1].norm()) < 1e-3


def test_nerr_is_exact_when_max_rel_is_high() -> None:
    """2^-150 is not a float32; lists far below max_rel have the nERR of any other high one."""
    scores, labels = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1, 4, 0]])
    found = [DirectMetric(f"nERR(max_rel={top})", TwinSigmoid())(scores, labels) for top in (40, 150, 30000)]
    assert 1 - float(found[0]) == pytest.approx((1 + 15 / 2) / (15 + 1 / 2), abs=1e-6)
    assert found[0] == found[1] == found[2]
