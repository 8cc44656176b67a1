"""SoftSort: rank indicators from distances to the sorted scores."""

from __future__ import annotations

import torch
from torch import Tensor

from rerank.relaxations.base import Adaptive, RankIndicators, spread, steepness
from rerank.relaxations.order import lowest
from rerank.settings.arguments import Positive


class SoftSort(RankIndicators):
    r"""SoftSort (Prillo and Eisenschlos 2020, with the absolute difference).

    .. math:: E_{rj} = \operatorname{softmax}_j(-|s_{[r]} - s_j| / \tau)

    with :math:`s_{[r]}` the r-th largest score. Tied documents share their ranks evenly. Time and memory grow with
    depth x N.

    ``tau="adaptive"``, which is not from the paper, is min(1, sd(s)) / 3, with sd the spread of the list's scores (at
    least .001, constant). A tau far above the spread does not learn without a cut-off: to first order in 1 / tau, the
    gradient of nDCG on a relevant document at rank q is proportional to
    :math:`\sum_{r<q} D_r - \sum_{r>q} D_r` for discounts D. That draws the document to the rank with half of the
    discount on either side, the 57th of 150, and not to the first.

    >>> scores, mask = torch.tensor([[1.0, 4.0]]).log(), torch.ones(1, 2, dtype=torch.bool)
    >>> SoftSort(tau=1).indicators(scores, mask, depth=1)  # the largest is ln 4: e^(-ln 4) and e^0, over their sum
    tensor([[[0.2000, 0.8000]]])

    Args:
        tau: temperature; exact as it goes to 0, 1 in the authors' code. "adaptive" takes it from the spread of scores.
    """

    def __init__(self, tau: Positive | Adaptive = 1.0) -> None:
        self.tau = tau

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        scaled = scores * steepness(spread(scores, mask)) if isinstance(self.tau, str) else scores / self.tau
        ordered = scaled.masked_fill(~mask, -torch.inf).topk(depth, dim=1).values
        ordered = ordered.masked_fill(ordered.isinf(), 0.0)  # ranks beyond the list
        scaled = scaled.masked_fill(~mask, -lowest(scores))
        return (ordered[:, :, None] - scaled[:, None, :]).abs().neg().softmax(dim=2)
