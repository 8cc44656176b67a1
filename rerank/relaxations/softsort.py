"""SoftSort: rank indicators from distances to the sorted scores."""

from __future__ import annotations

from torch import Tensor

from rerank.relaxations.base import RankIndicators
from rerank.relaxations.order import lowest


class SoftSort(RankIndicators):
    r"""SoftSort (Prillo and Eisenschlos 2020, Eq 3, with the absolute difference).

    .. math:: E_{rj} = \operatorname{softmax}_j(-|s_{[r]} - s_j| / \tau)

    with :math:`s_{[r]}` the r-th largest score. Tied documents share their ranks evenly. Memory grows with depth x N.

    Args:
        tau: temperature; exact as it goes to 0.
    """

    def __init__(self, tau: float = 1.0) -> None:
        if not tau > 0:
            raise ValueError(f"tau must be above 0, not {tau}")
        self.tau = tau

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        """``[B, depth, N]``."""
        low = lowest(scores)
        ordered = scores.masked_fill(~mask, low).topk(depth, dim=1).values.clamp(min=low / 2)
        distance = (ordered[:, :, None] - scores[:, None, :]).abs() / -self.tau
        return distance.masked_fill(~mask[:, None, :], low).softmax(dim=2)
