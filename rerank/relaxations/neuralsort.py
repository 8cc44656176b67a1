"""NeuralSort: rank indicators from a relaxed permutation matrix, balanced by Sinkhorn scaling."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rerank.errors import UserError
from rerank.relaxations.backward import full_precision
from rerank.relaxations.base import RankIndicators
from rerank.relaxations.order import first, gumbel, lowest
from rerank.relaxations.sinkhorn import balanced_product, by_lists, sums_by_lists
from rerank.settings.ranges import CountOrZero, NotNegative, Positive


class NeuralSort(RankIndicators):
    r"""NeuralSort (Grover et al. 2019), balanced as in NeuralNDCG (Pobrotyn and Białobrzęski 2021, Eqs 3, 5 and 6).

    .. math:: E_{rj} = \operatorname{softmax}_j\bigl(((N + 1 - 2r) s_j - \sum_l |s_j - s_l|) / \tau\bigr)

    and then up to ``sinkhorn`` rounds that make first the columns and then the rows sum to one. N is the number of
    real documents. Tied documents share their ranks evenly. The logits grow with N, so a temperature is smoother for
    a short list than for a long one.

    With Sinkhorn a list has two N x N matrices at its peak (100 MB each at N = 5,000 in float32), whatever the number
    of rounds, of which the graph keeps one. A round takes four products of a matrix with a vector. Without Sinkhorn
    (``sinkhorn=0``) matrices are depth x N. For P and nDCG the gradient is computed at once, some lists at a time, and
    the graph keeps none.

    >>> scores, mask = torch.tensor([[1.0, 4.0]]).log(), torch.ones(1, 2, dtype=torch.bool)
    >>> NeuralSort(sinkhorn=0).indicators(scores, mask, depth=2)  # softmax of (0, ln 4), then of (0, -ln 4)
    tensor([[[0.2000, 0.8000],
             [0.8000, 0.2000]]])

    Args:
        tau: temperature; exact as it goes to 0.
        sinkhorn: the largest number of rounds (the paper has 30, its code 50); 0 for none.
        tolerance: a list whose columns all sum to one within this is left alone from then on.
        transposed: the discount expected for a document instead of the gain expected at a rank (Eq 6); nDCG only.
        samples: how many draws of s + beta * Gumbel noise to average the measure over; 0 for none, the scores as
            they are.
        beta: scale of that noise.
    """

    def __init__(
        self,
        tau: Positive = 1.0,
        sinkhorn: int = 30,
        tolerance: NotNegative = 1e-6,
        transposed: bool = False,
        samples: CountOrZero = 0,
        beta: NotNegative = 0.1,
    ) -> None:
        if sinkhorn < (1 if transposed else 0):
            raise UserError(f"sinkhorn must be 0 or more, and 1 or more when transposed, not {sinkhorn}")
        self.tau, self.sinkhorn, self.tolerance = tau, sinkhorn, tolerance
        self.transposed, self.samples, self.beta = transposed, samples, beta
        if transposed:
            self.measures = ("nDCG",)
            self.gains = ("documents",)

    def draws(self, scores: Tensor, mask: Tensor, seeds: Tensor | None) -> list[Tensor]:
        if not self.samples:
            return [scores]
        noises = [gumbel(seeds, mask, draw).to(scores.dtype) for draw in range(self.samples)]
        return [(scores + self.beta * noise).masked_fill(~mask, 0.0) for noise in noises]

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        if not self.sinkhorn:
            return self._logits(scores, mask, depth).softmax(dim=2)
        every = torch.diag_embed(mask.to(scores.dtype))
        return by_lists(self._balanced, scores, every, mask)[:, :, :depth].transpose(1, 2)

    def expected(self, scores: Tensor, values: Tensor, mask: Tensor, depth: int) -> Tensor:
        if not self.sinkhorn:
            return super().expected(scores, values, mask, depth)
        return by_lists(self._balanced, scores, values[:, None, :], mask)[:, 0, :depth]

    def weighted(
        self, scores: Tensor, values: Tensor, weights: Tensor, mask: Tensor, exponential: bool = False
    ) -> Tensor:
        """``[B]``; transposed, the weight expected for every document times its value."""
        if self.transposed:
            weights = torch.nn.functional.pad(weights, (0, scores.shape[1] - weights.shape[1]))
            return sums_by_lists(self._discounted, scores.shape[1], scores, values, weights, mask)
        compute = partial(super().weighted, exponential=exponential)
        ranks = scores.shape[1] if self.sinkhorn else weights.shape[1]
        return sums_by_lists(compute, ranks, scores, values, weights, mask)

    def _discounted(self, scores: Tensor, values: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
        """``[B]``: the weight ``[B, N]`` expected for every document, times its value, summed."""
        logits = self._logits(scores, mask, scores.shape[1]).transpose(1, 2)  # whose columns are scaled first
        balanced = balanced_product(logits, weights[:, None, :], mask, first(mask), self.sinkhorn, self.tolerance)
        return (balanced[:, 0] * values).sum(dim=1)

    def _balanced(self, scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """``[B, V, N]``: values ``[B, V, N]`` over documents, as expected at the ranks."""
        logits = self._logits(scores, mask, scores.shape[1])
        return balanced_product(logits, values, first(mask), mask, self.sinkhorn, self.tolerance, softmax=True)

    def _logits(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        """What the indicators before Sinkhorn scaling are the softmax of: ``[B, depth, N]``."""
        count = mask.sum(dim=1, keepdim=True)
        # a shift changes no indicator, but N times a large score has few digits left for differences
        scores = scores - scores.detach().sum(dim=1, keepdim=True) / count.clamp(min=1)
        slopes = (count + 1 - 2 * torch.arange(1, depth + 1, device=scores.device)).to(scores.dtype)
        spread = torch.where(mask, total_distances(scores, mask) / self.tau, -lowest(scores))
        return _Logits.apply(scores / self.tau, spread, slopes)


class _Logits(torch.autograd.Function):
    """``slopes_r scores_j - spread_j`` less the largest of a row, ``[B, depth, N]``, in one piece of memory.

    It is cut off where products with the exponential would be subnormal, which processors are slow at.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, spread: Tensor, slopes: Tensor) -> Tensor:
        ctx.save_for_backward(slopes)
        logits = (slopes[:, :, None] * scores[:, None, :]).sub_(spread[:, None, :])
        logits.sub_(logits.amax(dim=2, keepdim=True))
        return logits.clamp_(min=math.log(torch.finfo(logits.dtype).tiny) + 18)

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        (slopes,) = ctx.saved_tensors
        both = torch.bmm(torch.stack([slopes, torch.full_like(slopes, -1.0)], dim=1), gradient)
        return both[:, 0], both[:, 1], None


def total_distances(scores: Tensor, mask: Tensor) -> Tensor:
    """``sum_l |s_j - s_l|`` over real documents, ``[B, N]``, in O(N log N); at pads anything finite."""
    return _Distances.apply(scores, mask)


class _Distances(torch.autograd.Function):
    """Among sorted scores: s_j times the surplus of lower over higher ones, plus the sum of the higher less the lower.

    Prefix sums are in float64, because they cancel.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor) -> Tensor:
        ordered, order = scores.masked_fill(~mask, torch.inf).sort(dim=1)
        places = torch.arange(scores.shape[1] + 1, device=scores.device)
        count = mask.sum(dim=1, keepdim=True)
        # how many scores are lower, and how many are lower or equal
        new = torch.nn.functional.pad(ordered[:, 1:] != ordered[:, :-1], (1, 1), value=True)
        lower = torch.where(new[:, :-1], places[:-1], 0).cummax(dim=1).values
        upto = torch.where(new[:, 1:], places[1:], len(places)).flip(1).cummin(dim=1).values.flip(1)
        lower, upto = lower.minimum(count), upto.minimum(count)
        surplus = lower + upto - count
        own = ordered.masked_fill_(ordered.isinf(), 0.0).double()
        distances = own * surplus - _between(own, lower, upto)
        ctx.save_for_backward(order, lower, upto, surplus, places[:-1] >= count)
        return torch.empty_like(scores).scatter_(1, order, distances.to(scores.dtype))

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        order, lower, upto, surplus, pads = ctx.saved_tensors
        own = gradient.gather(1, order).masked_fill_(pads, 0.0).double()
        moved = (own * surplus + _between(own, lower, upto)).masked_fill_(pads, 0.0)
        return torch.empty_like(gradient).scatter_(1, order, moved.to(gradient.dtype)), None


def _between(values: Tensor, lower: Tensor, upto: Tensor) -> Tensor:
    """The sum of the first ``lower`` values of a list less that of those from ``upto`` on, for each, ``[B, N]``."""
    sums = torch.nn.functional.pad(values.cumsum(dim=1), (1, 0))
    return sums.gather(1, lower) + sums.gather(1, upto) - sums[:, -1:]
