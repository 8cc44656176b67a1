"""Losses over ranked lists: direct metrics and surrogates, all with one signature (:class:`Loss`).

Names are imported at their first use, so that ``import rerank.losses`` does not import torch.
"""

from __future__ import annotations

from rerank.lazy import lazy
from rerank.losses.base import Criterion, Loss, Reduction

_MODULES = {
    "direct": ("DirectMetric",),
    "shorthands": (
        *("SmoothIP", "SmoothIAP", "SmoothINDCG", "NeuralNDCG", "SoftSortNDCG", "FastSoftSortNDCG"),
        *("OptimalTransportNDCG", "ApproxP", "ApproxAP", "ApproxMRR", "ApproxNDCG"),
        *("TwinSigmoidP", "TwinSigmoidAP", "TwinSigmoidNDCG", "TwinSigmoidNERR"),
    ),
    "listwise": ("SoftmaxCE", "ListNet", "ListMLE", "ListAP"),
    "wassrank": ("WassRank",),
    "lambda_loss": ("LambdaLoss",),
    "distillation": ("MarginMSE", "KLDivergence"),
    "pairwise": ("RankNet", "PairwiseHinge", "PairwiseSoftmax"),
    "pointwise": ("RMSE", "MSE", "BCE"),
}
_PARTS = ("Term", "Terms", "Ramp", "MinMax", "ReciprocalRank")
"""Parts of a sum of losses."""

_LOSSES = {name: module for module, names in _MODULES.items() for name in names}
_HOMES = _LOSSES | dict.fromkeys((*_PARTS, "Scaling"), "terms")

__all__ = ["Criterion", "Loss", "Reduction", "load_all", "load_parts", *_HOMES]
__getattr__, __dir__ = lazy(__name__, _HOMES)


def load_all() -> dict[str, type[Loss]]:
    """Import every loss of the library: classes by name, so that configurations may use short names.

    >>> load_all()["ListNet"]()
    ListNet()
    """
    return {name: __getattr__(name) for name in _LOSSES}


def load_parts() -> dict[str, type]:
    """Import the parts of a sum of losses: classes by name, without abstract ones.

    >>> "Ramp" in load_parts()
    True
    """
    return {name: __getattr__(name) for name in _PARTS}
