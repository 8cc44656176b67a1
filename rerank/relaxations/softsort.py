"""SoftSort: rank indicators from distances to the sorted scores."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rerank.relaxations.backward import full_precision
from rerank.relaxations.base import RankIndicators
from rerank.relaxations.order import blocks


class SoftSort(RankIndicators):
    r"""SoftSort (Prillo and Eisenschlos 2020, with the absolute difference).

    .. math:: E_{rj} = \operatorname{softmax}_j(-|s_{[r]} - s_j| / \tau)

    with :math:`s_{[r]}` the r-th largest score. Tied documents share their ranks evenly. Time grows with depth x N,
    memory with N: the backward pass computes the indicators anew.

    >>> scores, mask = torch.tensor([[1.0, 4.0]]).log(), torch.ones(1, 2, dtype=torch.bool)
    >>> SoftSort().indicators(scores, mask, depth=1)  # the largest score is ln 4: e^(-ln 4) and e^0, over their sum
    tensor([[[0.2000, 0.8000]]])

    Args:
        tau: temperature; exact as it goes to 0.
    """

    def __init__(self, tau: float = 1.0) -> None:
        if not tau > 0:
            raise ValueError(f"tau must be above 0, not {tau}")
        self.tau = tau

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        """``[B, depth, N]``."""
        weights = _weights(self._ordered(scores, mask, depth), (scores / self.tau).masked_fill(~mask, torch.inf))
        return weights / weights.sum(dim=2, keepdim=True).clamp(min=1)  # at least 1 unless the list is empty

    def expected(self, scores: Tensor, values: Tensor, mask: Tensor, depth: int) -> Tensor:
        """``[B, depth]``."""
        return _Expected.apply(self._ordered(scores, mask, depth), scores / self.tau, values, mask)

    def _ordered(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        """The largest scores over tau, ``[B, depth]``; 0 beyond the list."""
        ordered = scores.masked_fill(~mask, -float("inf")).topk(depth, dim=1).values
        return ordered.masked_fill(ordered.isinf(), 0.0) / self.tau


def _weights(ordered: Tensor, scores: Tensor) -> Tensor:
    """``exp(-|a_r - b_j|)``, ``[B, ranks, N]``; never subnormal, which processors are slow at, and lost beside 1."""
    least = math.log(torch.finfo(scores.dtype).tiny) + 18
    return (ordered[:, :, None] - scores[:, None, :]).abs_().neg_().clamp_(min=least).exp_()


class _Expected(torch.autograd.Function):
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
