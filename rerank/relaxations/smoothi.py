"""SmoothI: rank indicators by recursive elimination."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rerank.relaxations.backward import full_precision
from rerank.relaxations.base import RankIndicators
from rerank.relaxations.order import lowest
from rerank.settings.arguments import Positive, Rate


class SmoothI(RankIndicators):
    r"""SmoothI: rank indicators by recursive elimination (Thonet et al. 2021, Eqs 7 and 9).

    .. math:: E_{rj} = \operatorname{softmax}_j(\alpha S_j C_{rj}), \quad
        C_{1j} = 1,\ C_{r+1,j} = C_{rj} (1 - E_{rj} - \delta), \quad S = s - \min_j s_j

    over real documents; the minimum takes part in the gradient, C does not while ``stop_gradient`` is set. nDCG takes
    the gain of the expected grade (Eq 12).

    The recursion lets every document decay by 1 - delta per rank, whether it was selected or not. Indicators beyond a
    few ranks become uniform unless ``alpha`` times the score range is large: of 150 standard normal scores the largest
    indicator of rank 10 is that of the right document in 3 % of lists for alpha 10 and in 55 % for 1,000 (rank 20: 4 %
    and 3 %).

    A document may have weight at several ranks, and a column of E a sum above 1: nDCG then exceeds 1 (by .25 for one
    relevant document 4 ahead of a single other one, at alpha 1). If the margin grows further, its gradient changes
    sign, which keeps scores together.

    Tied scores, which the paper excludes, have no limit: their indicators stay shared at the first of their ranks, and
    all of them are eliminated in part. The rows sum to one but are not unimodal, as the paper's section 6 has it:
    unless alpha is large, the largest entries of several rows are those of one document.

    Source: Thonet, Cinar, Gaussier, Li and Renders, "SmoothI: Smooth Rank Indicators for Differentiable IR Metrics",
    2021.

    Time and memory grow with depth x N.

    >>> scores, mask = torch.tensor([[1.0, 4.0]]).log(), torch.ones(1, 2, dtype=torch.bool)
    >>> SmoothI().indicators(scores, mask, depth=1)  # e^0 and e^(ln 4), over their sum
    tensor([[[0.2000, 0.8000]]])

    Args:
        alpha: inverse temperature; exact as it grows.
        delta: how far below zero a selected document is pushed, from 0 and below 1 (the paper's range is 0 to 0.5).
        stop_gradient: whether C counts as constant (Eq 9), as in the paper's experiments.
    """

    gain_of = "ranks"

    def __init__(self, alpha: Positive = 1.0, delta: Rate = 0.1, stop_gradient: bool = True) -> None:
        self.alpha, self.delta, self.stop_gradient = alpha, delta, stop_gradient

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        return torch.stack(list(self._rows(scores, mask, depth)), dim=1)

    def _rows(self, scores: Tensor, mask: Tensor, depth: int) -> Iterator[Tensor]:
        """Yield the indicators of one rank after the other, ``[B, N]`` each."""
        shifted, pads = _shifted(scores, mask)
        kept = torch.ones_like(shifted)
        for steepness in self._steepness(depth):
            row = (pads + steepness * shifted * kept).softmax(dim=1)
            yield row
            kept = kept * (1 - (row.detach() if self.stop_gradient else row) / (1 - self.delta))

    def _steepness(self, depth: int) -> list[float]:
        """Alpha times the decay up to each rank; C without it can be updated by one fused operation."""
        return [self.alpha * (1 - self.delta) ** rank for rank in range(depth)]

    def expected(self, scores: Tensor, values: Tensor, mask: Tensor, depth: int) -> Tensor:
        if not self.stop_gradient:
            return torch.stack([(row * values).sum(dim=1) for row in self._rows(scores, mask, depth)], dim=1)
        shifted, pads = _shifted(scores, mask)
        ranks = torch.arange(depth, dtype=scores.dtype, device=scores.device)
        slope = self.alpha * (1 - self.delta) ** ranks  # as a tensor, since copying a list to a GPU waits
        return _Expected.apply(shifted, values, pads, self._steepness(depth), slope, -1 / (1 - self.delta))


def _shifted(scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Compute S, and what to add to logits so that pads have no weight."""
    above = scores.masked_fill(~mask, torch.finfo(scores.dtype).max)
    shifted = (scores - above.amin(dim=1, keepdim=True)).masked_fill(~mask, 0.0)
    return shifted, torch.zeros_like(scores).masked_fill_(~mask, lowest(scores))


class _Expected(torch.autograd.Function):
    r"""Expected values of all ranks, with C constant: :math:`de_r / ds_j = \alpha_r E_{rj} C_{rj} (v_j - e_r)`.

    Written by hand because autograd of the recursion takes four times as long for 16 lists of 150.
    """

    @staticmethod
    def forward(
        ctx: Any,
        shifted: Tensor,
        values: Tensor,
        pads: Tensor,
        steepness: list[float],
        slope: Tensor,
        eliminate: float,
    ) -> Tensor:
        rows = shifted.new_empty((len(steepness), *shifted.shape))
        kept = shifted.new_empty((len(steepness) + 1, *shifted.shape))  # C without its decay
        kept[0] = 1
        logits, befores = torch.empty_like(shifted), kept.unbind()
        for row, before, after, factor in zip(rows.unbind(), befores, befores[1:], steepness, strict=False):
            torch.addcmul(pads, shifted, before, value=factor, out=logits)
            torch.softmax(logits, dim=1, out=row)
            torch.addcmul(before, before, row, value=eliminate, out=after)
        expected = torch.bmm(values[:, None, :], rows.permute(1, 2, 0)).squeeze(1)
        slopes = rows.mul_(kept[:-1]).mul_(slope[:, None, None])
        ctx.save_for_backward(slopes, values, expected)
        return expected

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        slopes, values, expected = ctx.saved_tensors
        weights = torch.stack([gradient, gradient * expected], dim=1)
        sums = torch.bmm(weights, slopes.transpose(0, 1))
        return values * sums[:, 0] - sums[:, 1], None, None, None, None, None
