"""NeuralSort: rank indicators from a relaxed permutation matrix, balanced by Sinkhorn scaling."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rerank.relaxations.backward import full_precision
from rerank.relaxations.base import RankIndicators
from rerank.relaxations.order import first, lowest
from rerank.relaxations.random import gumbel
from rerank.relaxations.sinkhorn import balanced_product, by_lists


class NeuralSort(RankIndicators):
    r"""NeuralSort (Grover et al. 2019), balanced as in NeuralNDCG (Pobrotyn and Białobrzęski 2021, Eqs 3, 5 and 6).

    .. math:: E_{rj} = \operatorname{softmax}_j\bigl(((N + 1 - 2r) s_j - \sum_l |s_j - s_l|) / \tau\bigr)

    and then up to ``sinkhorn`` rounds that make first the columns and then the rows sum to one. N is the number of
    real documents. Tied documents share their ranks evenly. The logits grow with N, so a temperature is smoother for
    a short list than for a long one.

    With Sinkhorn a list keeps one N x N matrix (100 MB at N = 5,000 in float32) and three at its peak, whatever the
    number of rounds, and takes four products of it with a vector a round (about a second there); without
    (``sinkhorn=0``) it is depth x N.

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
        tau: float = 1.0,
        sinkhorn: int = 30,
        tolerance: float = 1e-6,
        transposed: bool = False,
        samples: int = 0,
        beta: float = 0.1,
    ) -> None:
        if not tau > 0:
            raise ValueError(f"tau must be above 0, not {tau}")
        if sinkhorn < (1 if transposed else 0):
            raise ValueError(f"sinkhorn must be 0 or more, and 1 or more when transposed, not {sinkhorn}")
        if samples < 0:
            raise ValueError(f"samples must be 0 or more, not {samples}")
        self.tau = tau
        self.sinkhorn = sinkhorn
        self.tolerance = tolerance
        self.transposed = transposed
        self.samples = samples
        self.beta = beta
        if transposed:
            self.measures = ("nDCG",)
            self.gains = ("documents",)

    def draws(self, scores: Tensor, mask: Tensor, seeds: Tensor | None) -> list[Tensor]:
        """The scores, or ``samples`` noisy copies of them."""
        if not self.samples:
            return [scores]
        noises = [gumbel(seeds, mask, draw).to(scores.dtype) for draw in range(self.samples)]
        return [(scores + self.beta * noise).masked_fill(~mask, 0.0) for noise in noises]

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        """``[B, depth, N]``."""
        if not self.sinkhorn:
            return self._rows(scores, mask, depth)
        every = torch.diag_embed(mask.to(scores.dtype))
        return by_lists(self._balanced, scores, every, mask)[:, :, :depth].transpose(1, 2)

    def expected(self, scores: Tensor, values: Tensor, mask: Tensor, depth: int) -> Tensor:
        """``[B, depth]``."""
        if not self.sinkhorn:
            return super().expected(scores, values, mask, depth)
        return by_lists(self._balanced, scores, values[:, None, :], mask)[:, 0, :depth]

    def weighted(
        self, scores: Tensor, values: Tensor, weights: Tensor, mask: Tensor, exponential: bool = False
    ) -> Tensor:
        """``[B]``; transposed, the weight expected for every document times its value."""
        if not self.transposed:
            return super().weighted(scores, values, weights, mask, exponential)
        weights = torch.nn.functional.pad(weights, (0, scores.shape[1] - weights.shape[1]))
        return (by_lists(self._discounts, scores, weights, mask) * values).sum(dim=1)

    def _discounts(self, scores: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
        """``[B, N]``: weights over ranks, as expected for the documents."""
        matrix = self._rows(scores, mask, scores.shape[1]).transpose(1, 2)
        return balanced_product(matrix, weights[:, None, :], mask, first(mask), self.sinkhorn, self.tolerance)[:, 0]

    def _balanced(self, scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """``[B, V, N]``: values ``[B, V, N]`` over documents, as expected at the ranks."""
        matrix = self._rows(scores, mask, scores.shape[1])
        return balanced_product(matrix, values, first(mask), mask, self.sinkhorn, self.tolerance)

    def _rows(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        """The matrix before Sinkhorn scaling: ``[B, depth, N]``, 0 at pads."""
        count = mask.sum(dim=1, keepdim=True)
        slopes = (count + 1 - 2 * torch.arange(1, depth + 1, device=scores.device)).to(scores.dtype)
        spread = torch.where(mask, total_distances(scores, mask) / self.tau, -lowest(scores))
        return _Softmax.apply(scores / self.tau, spread, slopes)


class _Softmax(torch.autograd.Function):
    """``softmax_j(slopes_r scores_j - spread_j)``, ``[B, depth, N]``, in one piece of memory.

    Entries so small that products with them would be subnormal, which processors are slow at, are 0.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, spread: Tensor, slopes: Tensor) -> Tensor:
        matrix = slopes[:, :, None] * scores[:, None, :]
        matrix -= spread[:, None, :]
        matrix -= matrix.amax(dim=2, keepdim=True)
        least = math.log(torch.finfo(matrix.dtype).tiny) + 18
        matrix.clamp_(min=least).exp_()
        torch.threshold_(matrix, math.exp(least) * 1.001, 0.0)
        matrix /= matrix.sum(dim=2, keepdim=True)
        ctx.save_for_backward(matrix, slopes)
        return matrix

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        matrix, slopes = ctx.saved_tensors
        to_logits = matrix * gradient
        to_logits.addcmul_(matrix, to_logits.sum(dim=2, keepdim=True), value=-1)
        both = torch.bmm(torch.stack([slopes, torch.full_like(slopes, -1.0)], dim=1), to_logits)
        return both[:, 0], both[:, 1], None


def total_distances(scores: Tensor, mask: Tensor) -> Tensor:
    """``sum_l |s_j - s_l|`` over real documents, ``[B, N]``, in O(N log N).

    Between sorted scores it is s_j times the surplus of lower over higher scores, plus the sum of the higher less
    that of the lower ones. Prefix sums are in float64, because they cancel.
    """
    ordered, _ = scores.double().masked_fill(~mask, float("inf")).sort(dim=1)
    keys = ordered.detach()
    own = scores.double()
    lower = torch.searchsorted(keys, own.detach().contiguous())
    upto = torch.searchsorted(keys, own.detach().contiguous(), right=True)
    count = mask.sum(dim=1, keepdim=True)
    upto = upto.minimum(count)
    sums = torch.nn.functional.pad(torch.where(keys.isinf(), 0.0, ordered).cumsum(dim=1), (1, 0))
    everything = sums[:, -1:]
    surplus = lower - (count - upto)
    distances = own * surplus - sums.gather(1, lower.minimum(count)) + everything - sums.gather(1, upto)
    return distances.to(scores.dtype)
