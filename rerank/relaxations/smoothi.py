"""SmoothI: rank indicators by recursive elimination (Thonet, Cinar, Gaussier, Li and Renders 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rerank.relaxations.base import GainOf, RankIndicators
from rerank.relaxations.order import lowest

if TYPE_CHECKING:
    from torch import Tensor


class SmoothI(RankIndicators):
    gain_of: ClassVar[GainOf] = "ranks"

    def __init__(self, alpha: float = 1.0, delta: float = 0.1, stop_gradient: bool = True) -> None:
        self.alpha = alpha
        self.delta = delta
        self.stop_gradient = stop_gradient

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        """``[B, depth, N]``, by the recursion."""
        import torch

        big = torch.finfo(scores.dtype).max
        shifted = (scores - scores.masked_fill(~mask, big).amin(dim=1, keepdim=True)).masked_fill(~mask, 0.0)
        factor = torch.ones_like(shifted)
        rows = []
        for _ in range(depth):
            row = (self.alpha * shifted * factor).masked_fill(~mask, lowest(scores)).softmax(dim=1)
            factor = factor * (1 - (row.detach() if self.stop_gradient else row) - self.delta)
            rows.append(row)
        return torch.stack(rows, dim=1)
