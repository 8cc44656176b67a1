"""SmoothI: rank indicators by recursive elimination."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from rerank.relaxations.backward import full_precision
from rerank.relaxations.base import GainOf, RankIndicators
from rerank.relaxations.order import blocks, lowest


class SmoothI(RankIndicators):
    r"""SmoothI: rank indicators by recursive elimination (Thonet et al. 2021, Eqs 7 and 9).

    .. math:: E_{rj} = \operatorname{softmax}_j(\alpha S_j C_{rj}), \quad
        C_{1j} = 1,\ C_{r+1,j} = C_{rj} (1 - E_{rj} - \delta), \quad S = s - \min_j s_j

    over real documents; the minimum takes part in the gradient, C does not while ``stop_gradient`` is set. nDCG takes
    the gain of the expected grade (Eq 12) unless told otherwise.

    The recursion lets every document decay by 1 - delta per rank, whether it was selected or not, so that indicators
    beyond a few ranks go uniform unless ``alpha`` times the score range is large: of 150 standard normal scores the
    largest indicator of rank 10 is that of the right document in 3 % of lists for alpha 10 and in 55 % for 1,000
    (rank 20: 4 % and 3 %). :meth:`fidelity` shows it. ``steady`` multiplies alpha by (1 - delta)^(1 - r) at rank r:
    what has not been selected keeps its score, and nothing else changes; at alpha 1,000 the shares are 69 % and 34 %.
    The alpha that keeps the error of K ranks below a bound then no longer grows like 2^K (the paper's Theorem 2, which
    holds with N - 1 in place of K - 1), but no remedy sharpens an alpha too small for rank 1.

    Tied scores have no limit: their indicators stay shared at the first of their ranks, and all of them are eliminated
    in part.

    Source: Thonet, Cinar, Gaussier, Li and Renders, "SmoothI: Smooth Rank Indicators for Differentiable IR Metrics",
    2021.

    Memory grows with B x N, not with the depth, unless ``stop_gradient`` is off.

    Args:
        alpha: inverse temperature; exact as it grows.
        delta: how far below zero a selected document is pushed, from 0 and below 1 (the paper's range is 0 to 0.5).
        stop_gradient: whether C counts as constant (Eq 9), as in the paper's experiments.
        steady: whether alpha makes up for the decay of documents that have not been selected; False in the paper.
    """

    gain_of: ClassVar[GainOf] = "ranks"

    def __init__(
        self, alpha: float = 1.0, delta: float = 0.1, stop_gradient: bool = True, steady: bool = False
    ) -> None:
        if not alpha > 0:
            raise ValueError(f"alpha must be above 0, not {alpha}")
        if not 0 <= delta < 1:
            raise ValueError(f"delta must be from 0 and below 1, not {delta}")
        self.alpha = alpha
        self.delta = delta
        self.stop_gradient = stop_gradient
        self.steady = steady

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        """``[B, depth, N]``, by the recursion."""
        return torch.stack(list(self._rows(scores, mask, depth)), dim=1)

    def _rows(self, scores: Tensor, mask: Tensor, depth: int) -> Iterator[Tensor]:
        """The indicators of one rank after the other, ``[B, N]`` each."""
        shifted, pads = self._shifted(scores, mask)
        kept = torch.ones_like(shifted)
        for rank in range(depth):
            row = (pads + self._alpha(rank) * shifted * kept).softmax(dim=1)
            yield row
            kept = kept * (1 - (row.detach() if self.stop_gradient else row) / (1 - self.delta))

    def expected(self, scores: Tensor, values: Tensor, mask: Tensor, depth: int) -> Tensor:
        """``[B, depth]``; with ``stop_gradient`` the backward pass runs the recursion again, and nothing is kept."""
        if not self.stop_gradient:
            found = [(row * values).sum(dim=1) for row in self._rows(scores, mask, depth)]
            return torch.stack(found, dim=1)
        shifted, pads = self._shifted(scores, mask)
        return _Expected.apply(shifted, values, _Recursion(pads, self, depth))

    def weighted(
        self, scores: Tensor, values: Tensor, weights: Tensor, mask: Tensor, exponential: bool = False
    ) -> Tensor:
        """``[B]``; the gradient is gathered in the forward pass, rank by rank."""
        if not self.stop_gradient:
            return super().weighted(scores, values, weights, mask, exponential)
        shifted, pads = self._shifted(scores, mask)
        return _Weighted.apply(shifted, values, weights, exponential, _Recursion(pads, self, weights.shape[1]))

    def _shifted(self, scores: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """S, and what is added to the logits to keep pads out."""
        above = scores.masked_fill(~mask, torch.finfo(scores.dtype).max)
        shifted = (scores - above.amin(dim=1, keepdim=True)).masked_fill(~mask, 0.0)
        return shifted, torch.zeros_like(scores).masked_fill_(~mask, lowest(scores))

    def _alpha(self, rank: Any) -> Any:
        """Alpha times the decay up to a rank (from 0), which is kept apart from C so that each step is one fused op."""
        return self.alpha * (1 - (0 if self.steady else self.delta)) ** rank


@dataclass
class _Recursion:
    """The recursion over ranks, some ranks at a time."""

    pads: Tensor
    relaxation: SmoothI
    depth: int

    def chunks(self, shifted: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """The ranks, their indicators, and C without its decay, each ``[ranks, B, N]``.

        The tensors are overwritten by the next chunk.
        """
        alpha, eliminate = self.relaxation._alpha, -1 / (1 - self.relaxation.delta)
        chunks = list(blocks(self.depth, shifted.numel(), shifted))
        size = chunks[0].stop if chunks else 0
        all_rows = shifted.new_empty((size, *shifted.shape))
        all_kept = shifted.new_ones((size + 1, *shifted.shape))
        rows, kept = all_rows.unbind(), all_kept.unbind()
        logits = torch.empty_like(shifted)
        for ranks in chunks:
            count = ranks.stop - ranks.start
            for i in range(count):
                torch.addcmul(self.pads, shifted, kept[i], value=alpha(ranks.start + i), out=logits)
                torch.softmax(logits, dim=1, out=rows[i])
                torch.addcmul(kept[i], kept[i], rows[i], value=eliminate, out=kept[i + 1])
            yield ranks, all_rows[:count], all_kept[:count]
            kept[0].copy_(kept[count])

    def alphas(self, like: Tensor) -> Tensor:
        """Alpha at every rank, ``[depth]``."""
        ranks = torch.arange(self.depth, dtype=like.dtype, device=like.device)
        return self.relaxation._alpha(ranks)


def _expected(rows: Tensor, values: Tensor) -> Tensor:
    """``e_v`` of the ranks of a chunk, ``[B, ranks]``."""
    return torch.bmm(values[:, None, :], rows.permute(1, 2, 0)).squeeze(1)


class _Gradient:
    """``sum_r w_r de_r/ds``, gathered chunk by chunk.

    With moves ``m = E C`` a rank adds ``w_r m_j (v_j - e_r)``: two sums of moves, of which the second loses v.
    """

    def __init__(self, shifted: Tensor) -> None:
        self.sums = shifted.new_zeros((shifted.shape[0], 2, shifted.shape[1]))

    def add(self, rows: Tensor, kept: Tensor, expected: Tensor, weights: Tensor) -> None:
        """A chunk; its rows are overwritten. ``expected`` and ``weights`` are ``[B, ranks]``."""
        moves = rows.mul_(kept).transpose(0, 1)
        self.sums.baddbmm_(torch.stack([weights, weights * expected], dim=1), moves)

    def total(self, values: Tensor) -> Tensor:
        """``[B, N]``."""
        return values * self.sums[:, 0] - self.sums[:, 1]


class _Expected(torch.autograd.Function):
    """``e_v[r]`` of every rank; backward by a second run of the recursion."""

    @staticmethod
    def forward(ctx: Any, shifted: Tensor, values: Tensor, recursion: _Recursion) -> Tensor:
        result = torch.cat([_expected(rows, values) for _, rows, _ in recursion.chunks(shifted)], dim=1)
        ctx.recursion = recursion
        ctx.save_for_backward(shifted, values, result)
        return result

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        shifted, values, expected = ctx.saved_tensors
        total = _Gradient(shifted)
        weights = gradient * ctx.recursion.alphas(gradient)
        for ranks, rows, kept in ctx.recursion.chunks(shifted):
            total.add(rows, kept, expected[:, ranks], weights[:, ranks])
        return total.total(values), None, None


class _Weighted(torch.autograd.Function):
    """``sum_r w_r f(e_v[r])`` and, in the same run of the recursion, its gradient."""

    @staticmethod
    def forward(
        ctx: Any, shifted: Tensor, values: Tensor, weights: Tensor, exponential: bool, recursion: _Recursion
    ) -> Tensor:
        result = shifted.new_zeros(shifted.shape[0])
        total = _Gradient(shifted)
        slopes = weights * recursion.alphas(weights) * (math.log(2) if exponential else 1.0)
        for ranks, rows, kept in recursion.chunks(shifted):
            expected = _expected(rows, values)
            gain = expected.exp2() if exponential else expected
            result += (weights[:, ranks] * (gain - 1 if exponential else gain)).sum(dim=1)
            if ctx.needs_input_grad[0]:
                total.add(rows, kept, expected, slopes[:, ranks] * gain if exponential else slopes[:, ranks])
        ctx.save_for_backward(total.total(values))
        return result

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        (total,) = ctx.saved_tensors
        return gradient[:, None] * total, None, None, None, None
