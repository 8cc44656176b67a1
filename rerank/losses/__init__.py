"""Losses over ranked lists: direct metrics and surrogates, all with one signature (:class:`Loss`).

Names are imported at their first use, so that ``import rerank.losses`` does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from rerank.losses.base import Loss

_LOSSES = {
    "direct": ["DirectMetric"],
    "shorthands": ["SmoothINDCG", "NeuralNDCG", "ApproxNDCG", "TwinSigmoidNDCG"],
    "listwise": ["SoftmaxCE", "ListNet", "ListMLE", "ListAP"],
    "wassrank": ["WassRank"],
    "lambda_loss": ["LambdaLoss"],
    "distillation": ["MarginMSE", "KLDivergence"],
    "pairwise": ["RankNet", "PairwiseHinge", "PairwiseSoftmax"],
    "pointwise": ["RMSE", "MSE", "BCE"],
}
LOSSES = [name for names in _LOSSES.values() for name in names]
PARTS = ["Term", "Terms", "Ramp", "MinMax", "ReciprocalRank"]
"""Parts of a sum of losses."""

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs=_LOSSES | {"base": ["Criterion", "Loss", "Reduction"], "terms": [*PARTS, "Scaling"]}
)
__all__ += ["load_all", "load_parts"]


def load_all() -> dict[str, type[Loss]]:
    """Import every loss of the library: classes by name, so that configurations may use short names.

    >>> load_all()["ListNet"]()
    ListNet()
    """
    return {name: __getattr__(name) for name in LOSSES}


def load_parts() -> dict[str, type]:
    """Import the parts of a sum of losses: classes by name, without abstract ones.

    >>> "Ramp" in load_parts()
    True
    """
    return {name: __getattr__(name) for name in PARTS}
