"""Direct metrics under the names of their papers.

A shorthand is a :class:`DirectMetric` with the relaxation and the NDCG of its paper, which has no cut-off and gain
2^y - 1; ``SmoothINDCG("nDCG@10")`` has the linear gain of trec_eval. Other arguments are those of the relaxation, with
the paper's values by default. ``alpha="adaptive"``, which is not from a paper, takes the steepness from the spread of a
list's scores. For other measures and relaxations write ``DirectMetric("AP", SmoothI())``.

>>> from rerank.losses import SmoothINDCG
>>> loss = SmoothINDCG("nDCG@10", alpha=3)
>>> loss, loss.relaxation
(SmoothINDCG(measure='nDCG@10', alpha=3), SmoothI(alpha=3))
"""

from __future__ import annotations

from rerank.losses.base import Reduction
from rerank.losses.direct import DirectMetric
from rerank.relaxations.base import Adaptive
from rerank.relaxations.neuralsort import NeuralSort
from rerank.relaxations.sigmoids import Approx, Gradient, TwinSigmoid
from rerank.relaxations.smoothi import SmoothI
from rerank.settings.arguments import NotNegative, Positive, Rate

NDCG = "nDCG(dcg='exp-log2')"


class SmoothINDCG(DirectMetric):
    """NDCG by :class:`SmoothI` (Thonet et al. 2021, Eq 12)."""

    def __init__(
        self,
        measure: str = NDCG,
        reduction: Reduction = "mean",
        *,
        alpha: Positive = 1.0,
        delta: Rate = 0.1,
        stop_gradient: bool = True,
    ) -> None:
        super().__init__(measure, SmoothI(alpha, delta, stop_gradient), reduction)


class NeuralNDCG(DirectMetric):
    """NDCG by balanced :class:`NeuralSort` (Pobrotyn and Białobrzęski 2021, Eq 5; ``transposed=True``: Eq 6)."""

    def __init__(
        self,
        measure: str = NDCG,
        reduction: Reduction = "mean",
        *,
        tau: Positive = 1.0,
        sinkhorn: int = 30,
        tolerance: NotNegative = 1e-6,
        transposed: bool = False,
    ) -> None:
        super().__init__(measure, NeuralSort(tau, sinkhorn, tolerance, transposed), reduction)


class ApproxNDCG(DirectMetric):
    """NDCG by :class:`Approx` (Qin et al. 2010; Bruch et al. 2019; not theirs: ``alpha="adaptive"``)."""

    def __init__(
        self,
        measure: str = NDCG,
        reduction: Reduction = "mean",
        *,
        alpha: Positive | Adaptive = 10.0,
        beta: Positive | None = None,
    ) -> None:
        super().__init__(measure, Approx(alpha, beta), reduction)


class TwinSigmoidNDCG(DirectMetric):
    """NDCG by :class:`TwinSigmoid` (Yu 2020, Eq 15; not theirs: ``alpha="adaptive"``)."""

    def __init__(
        self,
        measure: str = NDCG,
        reduction: Reduction = "mean",
        *,
        gradient: Gradient = 3,
        alpha: Positive | Adaptive = 1.0,
    ) -> None:
        super().__init__(measure, TwinSigmoid(gradient, alpha), reduction)
