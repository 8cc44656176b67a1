"""Losses over ranked lists: direct metrics and surrogates, all with one signature (:class:`Loss`).

Names are imported at their first use, so that ``import rerank.losses`` does not import torch.
"""

from __future__ import annotations

import lazy_loader

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
