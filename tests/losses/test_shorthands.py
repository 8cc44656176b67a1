"""Shorthands are points of the grid: the same loss as the DirectMetric that they stand for."""

from __future__ import annotations

import pytest

from rerank import losses
from rerank.losses import DirectMetric
from rerank.relaxations import Approx, NeuralSort, SmoothI, TwinSigmoid
from rerank.settings.arguments import described

EXP = "nDCG(dcg='exp-log2')"
MEANT = {
    "SmoothINDCG": DirectMetric(EXP, SmoothI()),
    "NeuralNDCG": DirectMetric(EXP, NeuralSort(tau=1, sinkhorn=30)),
    "ApproxNDCG": DirectMetric(EXP, Approx()),
    "TwinSigmoidNDCG": DirectMetric(EXP, TwinSigmoid()),
}


def test_arguments_reach_the_relaxation() -> None:
    loss = losses.SmoothINDCG("nDCG@10", alpha=3, delta=0.2, reduction="sum")
    assert repr(loss.relaxation) == repr(SmoothI(alpha=3, delta=0.2))
    assert (str(loss.measure), loss.reduction) == ("nDCG@10", "sum")
    assert repr(losses.NeuralNDCG(transposed=True).relaxation) == repr(NeuralSort(transposed=True))
    with pytest.raises(TypeError, match="alhpa"):
        losses.ApproxNDCG(alhpa=3)
    with pytest.raises(ValueError, match="gradient: expected 1, 2 or 3, not 7"):
        losses.TwinSigmoidNDCG(gradient=7)


@pytest.mark.parametrize(("name", "meant"), MEANT.items(), ids=list(MEANT))
def test_shorthand_is_the_direct_metric_of_its_paper(name: str, meant: DirectMetric) -> None:
    loss = getattr(losses, name)()
    assert isinstance(loss, DirectMetric) and loss.measure == meant.measure
    assert described(loss.relaxation) == described(meant.relaxation)
    settings = described(loss)["init_args"]
    assert settings == {"measure": str(meant.measure), "reduction": "mean", **meant.relaxation.arguments()}
