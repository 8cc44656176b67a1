"""SoftSort: rank indicators from distances to the sorted scores."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rerank.relaxations.backward import full_precision
from rerank.relaxations.base import RankIndicators, Spread, spread, steepness
from rerank.relaxations.order import blocks
from rerank.settings.ranges import Positive


class SoftSort(RankIndicators):
    r"""SoftSort (Prillo and Eisenschlos 2020, with the absolute difference).

    .. math:: E_{rj} = \operatorname{softmax}_j(-|s_{[r]} - s_j| / \tau)

    with :math:`s_{[r]}` the r-th largest score. Tied documents share their ranks evenly. Time grows with depth x N,
    memory with N: the backward pass computes the indicators anew.

    ``tau="spread"``, which is ours, is min(1, sd(s)) / 3, with sd the spread of the list's scores (at least .001,
    constant). A tau far above the spread does not learn without a cut-off: to first order in 1 / tau, the gradient of
    nDCG on a relevant document at rank q is proportional to :math:`\sum_{r<q} D_r - \sum_{r>q} D_r` for discounts D,
    which draws it to the rank where half of the discount lies on either side, the 57th of 150, and not to the first.

    >>> scores, mask = torch.tensor([[1.0, 4.0]]).log(), torch.ones(1, 2, dtype=torch.bool)
    >>> SoftSort(tau=1).indicators(scores, mask, depth=1)  # the largest is ln 4: e^(-ln 4) and e^0, over their sum
    tensor([[[0.2000, 0.8000]]])

    Args:
        tau: temperature; exact as it goes to 0, 1 in the authors' code. "spread" takes it from the spread of scores.
    """

    def __init__(self, tau: Positive | Spread = 1.0) -> None:
        self.tau = tau

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        scaled = self._scaled(scores, mask)
        weights = _weights(_largest(scaled, mask, depth), scaled.masked_fill(~mask, torch.inf))
        return weights / weights.sum(dim=2, keepdim=True).clamp(min=1)  # at least 1 unless the list is empty

    def expected(self, scores: Tensor, values: Tensor, mask: Tensor, depth: int) -> Tensor:
        scaled = self._scaled(scores, mask)
        return _SoftSortExpected.apply(_largest(scaled, mask, depth), scaled, values, mask)

    def _scaled(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores * steepness(spread(scores, mask)) if isinstance(self.tau, str) else scores / self.tau


def _largest(scores: Tensor, mask: Tensor, depth: int) -> Tensor:
    """The largest scores, ``[B, depth]``; 0 beyond the list."""
    ordered = scores.masked_fill(~mask, -float("inf")).topk(depth, dim=1).values
    return ordered.masked_fill(ordered.isinf(), 0.0)


def _weights(ordered: Tensor, scores: Tensor) -> Tensor:
    """``exp(-|a_r - b_j|)``, ``[B, ranks, N]``; never subnormal, which processors are slow at, and lost beside 1."""
    least = math.log(torch.finfo(scores.dtype).tiny) + 18
    return (ordered[:, :, None] - scores[:, None, :]).abs_().neg_().clamp_(min=least).exp_()


class _SoftSortExpected(torch.autograd.Function):
    """``sum_j E[r, j] v_j`` of every rank, some ranks at a time; the weights of a single block are kept."""

    @staticmethod
    def forward(ctx: Any, ordered: Tensor, scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        scores = scores.masked_fill(~mask, torch.inf)
        totals = torch.empty_like(ordered)
        result = torch.empty_like(ordered)
        cuts = list(blocks(ordered.shape[1], scores.numel(), scores))
        for ranks in cuts:
            weights = _weights(ordered[:, ranks], scores)
            totals[:, ranks] = weights.sum(dim=2).clamp_(min=1)
            result[:, ranks] = torch.bmm(values[:, None, :], weights.transpose(1, 2)).squeeze(1) / totals[:, ranks]
        ctx.cuts, kept = cuts, [weights] if len(cuts) == 1 else []
        ctx.save_for_backward(ordered, scores, values, totals, result, *kept)
        return result

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        ordered, scores, values, totals, result, *kept = ctx.saved_tensors
        to_ordered, to_scores = torch.empty_like(ordered), torch.zeros_like(scores)
        slopes = gradient / totals
        for ranks in ctx.cuts:
            pulls = (scores[:, None, :] - ordered[:, ranks, None]).sign_()
            pulls *= kept[0] if kept else _weights(ordered[:, ranks], scores)
            pulls *= values[:, None, :] - result[:, ranks, None]
            to_ordered[:, ranks] = pulls.sum(dim=2) * slopes[:, ranks]
            to_scores -= torch.bmm(slopes[:, None, ranks], pulls).squeeze(1)
        return to_ordered, to_scores, None, None
