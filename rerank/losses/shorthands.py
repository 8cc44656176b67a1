"""Points of the grid under the names that people search for; no code of their own.

Each is ``DirectMetric(measure, Relaxation(**settings))`` with the measure that its paper trains on: NDCG has gain
2^y - 1 there, so write ``SmoothINDCG("nDCG@10")`` for the linear gain of trec_eval.
"""

from __future__ import annotations

from typing import Any

from rerank.losses.base import Reduction
from rerank.losses.direct import DirectMetric
from rerank.relaxations.approx import Approx
from rerank.relaxations.fastsoftsort import FastSoftSort
from rerank.relaxations.neuralsort import NeuralSort
from rerank.relaxations.smoothi import SmoothI
from rerank.relaxations.softsort import SoftSort
from rerank.relaxations.transport import OptimalTransport
from rerank.relaxations.twinsigmoid import TwinSigmoid

_NDCG = "nDCG(dcg='exp-log2')"


class SmoothIP(DirectMetric):
    """P@k by :class:`SmoothI` (Thonet et al. 2021, Eq 10)."""

    def __init__(self, measure: str = "P@10", reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, SmoothI(**settings), None, reduction, validate)


class SmoothIAP(DirectMetric):
    """AP by :class:`SmoothI` (Thonet et al. 2021, Eq 11)."""

    def __init__(self, measure: str = "AP", reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, SmoothI(**settings), None, reduction, validate)


class SmoothINDCG(DirectMetric):
    """NDCG by :class:`SmoothI` (Thonet et al. 2021, Eq 12)."""

    def __init__(self, measure: str = _NDCG, reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, SmoothI(**settings), None, reduction, validate)


class NeuralNDCG(DirectMetric):
    """NDCG by balanced :class:`NeuralSort` (Pobrotyn and Białobrzęski 2021, Eq 5; ``transposed=True``: Eq 6)."""

    def __init__(self, measure: str = _NDCG, reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, NeuralSort(**settings), None, reduction, validate)


class SoftSortNDCG(DirectMetric):
    """NDCG by :class:`SoftSort`, as SmoothI's authors compare it."""

    def __init__(self, measure: str = _NDCG, reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, SoftSort(**settings), None, reduction, validate)


class FastSoftSortNDCG(DirectMetric):
    """NDCG by :class:`FastSoftSort`, as SmoothI's authors compare it."""

    def __init__(self, measure: str = _NDCG, reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, FastSoftSort(**settings), None, reduction, validate)


class OptimalTransportNDCG(DirectMetric):
    """NDCG by :class:`OptimalTransport`, as SmoothI's authors compare it."""

    def __init__(self, measure: str = _NDCG, reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, OptimalTransport(**settings), None, reduction, validate)


class ApproxP(DirectMetric):
    """P@k by :class:`Approx` (Qin, Liu and Li 2010)."""

    def __init__(self, measure: str = "P@10", reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, Approx(**settings), None, reduction, validate)


class ApproxAP(DirectMetric):
    """AP by :class:`Approx` (Qin, Liu and Li 2010)."""

    def __init__(self, measure: str = "AP", reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, Approx(**settings), None, reduction, validate)


class ApproxMRR(DirectMetric):
    """Reciprocal rank by :class:`Approx`."""

    def __init__(self, measure: str = "RR", reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, Approx(**settings), None, reduction, validate)


class ApproxNDCG(DirectMetric):
    """NDCG by :class:`Approx` (Qin, Liu and Li 2010; Bruch et al. 2019)."""

    def __init__(self, measure: str = _NDCG, reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, Approx(**settings), None, reduction, validate)


class TwinSigmoidP(DirectMetric):
    """P@k by :class:`TwinSigmoid` (Yu 2020, Eq 13)."""

    def __init__(self, measure: str = "P@10", reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, TwinSigmoid(**settings), None, reduction, validate)


class TwinSigmoidAP(DirectMetric):
    """AP by :class:`TwinSigmoid` (Yu 2020, Eq 14)."""

    def __init__(self, measure: str = "AP", reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, TwinSigmoid(**settings), None, reduction, validate)


class TwinSigmoidNDCG(DirectMetric):
    """NDCG by :class:`TwinSigmoid` (Yu 2020, Eq 15)."""

    def __init__(self, measure: str = _NDCG, reduction: Reduction = "mean", validate: bool = False, **settings: Any):
        super().__init__(measure, TwinSigmoid(**settings), None, reduction, validate)


class TwinSigmoidNERR(DirectMetric):
    """nERR@k by :class:`TwinSigmoid` (Yu 2020, Eq 16)."""

    def __init__(
        self, measure: str = "nERR@10", reduction: Reduction = "mean", validate: bool = False, **settings: Any
    ):
        super().__init__(measure, TwinSigmoid(**settings), None, reduction, validate)
