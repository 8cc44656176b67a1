"""NeuralSort: rank indicators from a relaxed permutation matrix, balanced by Sinkhorn scaling."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rerank.errors import UserError
from rerank.relaxations.base import RankIndicators
from rerank.relaxations.order import first, lowest
from rerank.relaxations.sinkhorn import balanced_product
from rerank.settings.arguments import NotNegative, Positive


class NeuralSort(RankIndicators):
    r"""NeuralSort (Grover et al. 2019), balanced as in NeuralNDCG (Pobrotyn and Białobrzęski 2021, Eqs 3, 5 and 6).

    .. math:: E_{rj} = \operatorname{softmax}_j\bigl(((N + 1 - 2r) s_j - \sum_l |s_j - s_l|) / \tau\bigr)

    and then up to ``sinkhorn`` rounds that make first the columns and then the rows sum to one. N is the number of
    real documents. Tied documents share their ranks evenly. The logits grow with N, so a temperature is smoother for
    a short list than for a long one.

    Time and memory grow with N x N; a Sinkhorn round takes four products of a matrix with a vector and keeps two
    vectors.

    >>> scores, mask = torch.tensor([[1.0, 4.0]]).log(), torch.ones(1, 2, dtype=torch.bool)
    >>> NeuralSort(sinkhorn=0).indicators(scores, mask, depth=2)  # softmax of (0, ln 4), then of (0, -ln 4)
    tensor([[[0.2000, 0.8000],
             [0.8000, 0.2000]]])

    Args:
        tau: temperature; exact as it goes to 0.
        sinkhorn: the largest number of rounds (the paper has 30, its code 50); 0 for none.
        tolerance: a list whose columns all sum to one within this is left alone from then on.
        transposed: the discount expected for a document instead of the gain expected at a rank (Eq 6); nDCG only.
    """

    def __init__(
        self,
        tau: Positive = 1.0,
        sinkhorn: int = 30,
        tolerance: NotNegative = 1e-6,
        transposed: bool = False,
    ) -> None:
        if sinkhorn < (1 if transposed else 0):
            raise UserError(f"sinkhorn must be 0 or more, and 1 or more when transposed, not {sinkhorn}")
        self.tau, self.sinkhorn, self.tolerance, self.transposed = tau, sinkhorn, tolerance, transposed
        if transposed:
            self.measures = ("nDCG",)

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        if not self.sinkhorn:
            return self._logits(scores, mask, depth).softmax(dim=2)
        every = torch.diag_embed(mask.to(scores.dtype))
        return self._balanced(scores, every, mask)[:, :, :depth].transpose(1, 2)

    def expected(self, scores: Tensor, values: Tensor, mask: Tensor, depth: int) -> Tensor:
        if not self.sinkhorn:
            return super().expected(scores, values, mask, depth)
        return self._balanced(scores, values[:, None, :], mask)[:, 0, :depth]

    def weighted(
        self, scores: Tensor, values: Tensor, weights: Tensor, mask: Tensor, exponential: bool = False
    ) -> Tensor:
        """Compute ``[B]``; transposed, the weight expected for every document times its value."""
        if not self.transposed:
            return super().weighted(scores, values, weights, mask, exponential)
        weights = torch.nn.functional.pad(weights, (0, scores.shape[1] - weights.shape[1]))
        logits = self._scalable(scores, mask).transpose(1, 2)  # whose columns are scaled first
        discounts = balanced_product(logits, weights[:, None, :], mask, first(mask), self.sinkhorn, self.tolerance)
        return (discounts[:, 0] * values).sum(dim=1)

    def _balanced(self, scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Compute values ``[B, V, N]`` over documents, as expected at the ranks: ``[B, V, N]``."""
        logits = self._scalable(scores, mask)
        return balanced_product(logits, values, first(mask), mask, self.sinkhorn, self.tolerance, softmax=True)

    def _scalable(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Compute logits less the largest of a row, and cut off where products with the exponential are subnormal."""
        logits = self._logits(scores, mask, scores.shape[1])
        logits = logits - logits.detach().amax(dim=2, keepdim=True)
        return logits.clamp(min=math.log(torch.finfo(logits.dtype).tiny) + 18)

    def _logits(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        """Compute the logits whose softmax are the indicators before Sinkhorn scaling: ``[B, depth, N]``."""
        count = mask.sum(dim=1, keepdim=True)
        # a shift changes no indicator, but N times a large score has few digits left for differences
        scores = scores - scores.detach().sum(dim=1, keepdim=True) / count.clamp(min=1)
        slopes = (count + 1 - 2 * torch.arange(1, depth + 1, device=scores.device)).to(scores.dtype)
        distances = ((scores[:, :, None] - scores[:, None, :]).abs() * mask[:, None, :]).sum(dim=2)
        distances = torch.where(mask, distances / self.tau, -lowest(scores))
        return slopes[:, :, None] * (scores / self.tau)[:, None, :] - distances[:, None, :]
