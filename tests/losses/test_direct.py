"""DirectMetric: ties, gradients by hand, settings, and relaxations of one's own."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rerank.errors import UserError
from rerank.losses import DirectMetric
from rerank.relaxations import (
    Approx,
    Batch,
    NeuralSort,
    RankIndicators,
    Relaxation,
    SmoothI,
    SoftRanks,
    SoftSort,
    TwinSigmoid,
)

EXP = "nDCG(dcg='exp-log2')"


def test_twin_sigmoid_draws_an_order_for_tied_scores() -> None:
    scores, labels = torch.zeros(4000, 2), torch.tensor([1.0, 0.0]).expand(4000, 2)
    loss = DirectMetric("RR", TwinSigmoid(), reduction="none")
    values = loss(scores, labels, seeds=torch.arange(4000))
    assert set(values.tolist()) == {0.0, 0.5}
    assert abs(float(values.mean()) - 0.25) < 5 * 0.25 / math.sqrt(4000)
    assert torch.equal(values, loss(scores, labels, seeds=torch.arange(4000)))


def test_twin_sigmoid_gradient_by_hand() -> None:
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


def test_what_does_not_go_together_is_refused_at_once() -> None:
    with pytest.raises(UserError, match="did you mean"):
        DirectMetric("nDGC@10", SmoothI())
    for name in ("AP", "P@5", "RR", "nERR@5"):
        with pytest.raises(ValueError, match=rf"transposed=True.*nDCG, not for {name}"):
            DirectMetric(name, NeuralSort(transposed=True))
    for name, relaxation in ((EXP, NeuralSort(transposed=True)), ("nDCG", Approx()), ("AP", SmoothI())):
        with pytest.raises(ValueError, match="gain_of='ranks' needs nDCG from rank indicators"):
            DirectMetric(name, relaxation, gain_of="ranks")
    for given in ({"gain_of": "rank"}, {"balance": -1}):
        with pytest.raises(ValueError, match=f"{next(iter(given))}: "):
            DirectMetric("nDCG", SmoothI(), **given)


class Halves(RankIndicators):
    """A toy: the exact indicators, blurred with the uniform ones and tied to the scores by SoftSort."""

    def __init__(self, blur: float = 0.0) -> None:
        self.blur = blur

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        uniform = (mask / mask.sum(dim=1, keepdim=True))[:, None, :].to(scores.dtype)
        return (1 - self.blur) * SoftSort(1e-4).indicators(scores, mask, depth) + self.blur * uniform


class Tanh(SoftRanks):
    """A toy: hyperbolic tangents in place of sigmoids."""

    beta = 60.0

    def __init__(self, steepness: float = 50.0) -> None:
        self.steepness = steepness

    def ranks(self, batch: Batch) -> Tensor:
        behind = (1 + (self.steepness * (batch.scores[:, None, :] - batch.scores[:, :, None])).tanh()) / 2
        return batch.at_rows(0.5 + (behind * batch.mask[:, None, :]).sum(dim=2))


def test_a_relaxation_must_be_of_a_family() -> None:
    with pytest.raises(ValueError, match="RankIndicators or SoftRanks"):
        DirectMetric("nDCG", Relaxation())(torch.zeros(1, 2), torch.tensor([[1, 0]]))


def test_ones_own_by_import_path_in_a_config() -> None:
    from jsonargparse import ArgumentParser

    from rerank.losses import Loss

    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Loss, "loss")
    arguments = ["--loss=rerank.losses.DirectMetric", "--loss.measure=nDCG@10"]
    arguments += ["--loss.relaxation=tests.losses.test_direct.Halves", "--loss.relaxation.blur=0.5"]
    loss = parser.instantiate_classes(parser.parse_args(arguments)).loss
    assert repr(loss) == "DirectMetric('nDCG@10', Halves(blur=0.5))"
