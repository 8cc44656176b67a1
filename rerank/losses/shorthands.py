"""Direct metrics under the names of their papers.

A shorthand is a :class:`DirectMetric` with the relaxation and the default measure of its paper. For NDCG this is the
measure without cut-off and with gain 2^y - 1; ``SmoothINDCG("nDCG@10")`` has the linear gain of trec_eval. Other
arguments are those of the relaxation, with the paper's values by default. ``alpha="adaptive"`` (``tau``, ``strength``),
which is not from a paper, takes the steepness from the spread of a list's scores.

>>> from rerank.losses import SmoothINDCG
>>> loss = SmoothINDCG("nDCG@10", alpha=3)
>>> loss, loss.relaxation
(SmoothINDCG(measure='nDCG@10', alpha=3), SmoothI(alpha=3))
"""

from __future__ import annotations

from typing import ClassVar

from rerank.losses.base import Reduction
from rerank.losses.direct import DirectMetric
from rerank.relaxations.base import Adaptive, Relaxation
from rerank.relaxations.fastsoftsort import BETA, FastSoftSort
from rerank.relaxations.neuralsort import NeuralSort
from rerank.relaxations.sigmoids import Approx, Gradient, TwinSigmoid
from rerank.relaxations.smoothi import SmoothI
from rerank.relaxations.softsort import SoftSort
from rerank.relaxations.transport import OptimalTransport
from rerank.settings.ranges import Count, CountOrZero, NotNegative, Positive, Rate

NDCG = "nDCG(dcg='exp-log2')"


class _Shorthand(DirectMetric):
    """A direct metric with a default measure."""

    usual: ClassVar[str] = NDCG

    def _make(self, measure: str | None, reduction: Reduction, relaxation: Relaxation) -> None:
        DirectMetric.__init__(self, self.usual if measure is None else measure, relaxation, reduction)


class _SmoothI(_Shorthand):
    def __init__(
        self,
        measure: str | None = None,
        reduction: Reduction = "mean",
        *,
        alpha: Positive = 1.0,
        delta: Rate = 0.1,
        stop_gradient: bool = True,
    ) -> None:
        self._make(measure, reduction, SmoothI(alpha, delta, stop_gradient))


class SmoothIP(_SmoothI):
    """P@k by :class:`SmoothI` (Thonet et al. 2021, Eq 10), by default P@10."""

    usual = "P@10"


class SmoothIAP(_SmoothI):
    """AP by :class:`SmoothI` (Thonet et al. 2021, Eq 11)."""

    usual = "AP"


class SmoothINDCG(_SmoothI):
    """NDCG by :class:`SmoothI` (Thonet et al. 2021, Eq 12)."""


class NeuralNDCG(_Shorthand):
    """NDCG by balanced :class:`NeuralSort` (Pobrotyn and Białobrzęski 2021, Eq 5; ``transposed=True``: Eq 6)."""

    def __init__(
        self,
        measure: str | None = None,
        reduction: Reduction = "mean",
        *,
        tau: Positive = 1.0,
        sinkhorn: int = 30,
        tolerance: NotNegative = 1e-6,
        transposed: bool = False,
        samples: CountOrZero = 0,
        beta: NotNegative = 0.1,
    ) -> None:
        self._make(measure, reduction, NeuralSort(tau, sinkhorn, tolerance, transposed, samples, beta))


class SoftSortNDCG(_Shorthand):
    """NDCG by :class:`SoftSort`, as SmoothI's authors compare it; not theirs: ``tau="adaptive"``."""

    def __init__(
        self, measure: str | None = None, reduction: Reduction = "mean", *, tau: Positive | Adaptive = 1.0
    ) -> None:
        self._make(measure, reduction, SoftSort(tau))


class FastSoftSortNDCG(_Shorthand):
    """NDCG by :class:`FastSoftSort`, as SmoothI's authors compare it; not theirs: ``strength="adaptive"``."""

    def __init__(
        self,
        measure: str | None = None,
        reduction: Reduction = "mean",
        *,
        strength: Positive | Adaptive = 1.0,
        beta: Positive = BETA,
    ) -> None:
        self._make(measure, reduction, FastSoftSort(strength, beta))


class OptimalTransportNDCG(_Shorthand):
    """NDCG by :class:`OptimalTransport`, as SmoothI's authors compare it."""

    def __init__(
        self,
        measure: str | None = None,
        reduction: Reduction = "mean",
        *,
        epsilon: Positive = 0.1,
        iterations: Count = 50,
    ) -> None:
        self._make(measure, reduction, OptimalTransport(epsilon, iterations))


class _Approx(_Shorthand):
    def __init__(
        self,
        measure: str | None = None,
        reduction: Reduction = "mean",
        *,
        alpha: Positive | Adaptive = 10.0,
        beta: Positive | None = None,
    ) -> None:
        self._make(measure, reduction, Approx(alpha, beta))


class ApproxP(_Approx):
    """P@k by :class:`Approx` (Qin, Liu and Li 2010; not theirs: ``alpha="adaptive"``), by default P@10."""

    usual = "P@10"


class ApproxAP(_Approx):
    """AP by :class:`Approx` (Qin, Liu and Li 2010; not theirs: ``alpha="adaptive"``)."""

    usual = "AP"


class ApproxMRR(_Approx):
    """Reciprocal rank by :class:`Approx`: in no paper, after Qin's AP."""

    usual = "RR"


class ApproxNDCG(_Approx):
    """NDCG by :class:`Approx` (Qin et al. 2010; Bruch et al. 2019; not theirs: ``alpha="adaptive"``)."""


class _TwinSigmoid(_Shorthand):
    def __init__(
        self,
        measure: str | None = None,
        reduction: Reduction = "mean",
        *,
        gradient: Gradient = 3,
        alpha: Positive | Adaptive = 1.0,
    ) -> None:
        self._make(measure, reduction, TwinSigmoid(gradient, alpha))


class TwinSigmoidP(_TwinSigmoid):
    """P@k by :class:`TwinSigmoid` (Yu 2020, Eq 13; not theirs: ``alpha="adaptive"``), by default P@10."""

    usual = "P@10"


class TwinSigmoidAP(_TwinSigmoid):
    """AP by :class:`TwinSigmoid` (Yu 2020, Eq 14; not theirs: ``alpha="adaptive"``)."""

    usual = "AP"


class TwinSigmoidNDCG(_TwinSigmoid):
    """NDCG by :class:`TwinSigmoid` (Yu 2020, Eq 15; not theirs: ``alpha="adaptive"``)."""


class TwinSigmoidNERR(_TwinSigmoid):
    """NERR@k by :class:`TwinSigmoid` (Yu 2020, Eq 16; not theirs: ``alpha="adaptive"``), by default nERR@10."""

    usual = "nERR@10"
