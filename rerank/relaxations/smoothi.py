"""SmoothI: rank indicators by recursive elimination."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rerank.relaxations.backward import WithGradient, full_precision
from rerank.relaxations.base import RankIndicators
from rerank.relaxations.eliminate import in_one_kernel, launch, step_by_step
from rerank.relaxations.order import blocks, lowest
from rerank.settings.ranges import Positive, Rate


class SmoothI(RankIndicators):
    r"""SmoothI: rank indicators by recursive elimination (Thonet et al. 2021, Eqs 7 and 9).

    .. math:: E_{rj} = \operatorname{softmax}_j(\alpha S_j C_{rj}), \quad
        C_{1j} = 1,\ C_{r+1,j} = C_{rj} (1 - E_{rj} - \delta), \quad S = s - \min_j s_j

    over real documents; the minimum takes part in the gradient, C does not while ``stop_gradient`` is set. nDCG takes
    the gain of the expected grade (Eq 12) by default.

    The recursion lets every document decay by 1 - delta per rank, whether it was selected or not, so that indicators
    beyond a few ranks become uniform unless ``alpha`` times the score range is large: of 150 standard normal scores the
    largest indicator of rank 10 is that of the right document in 3 % of lists for alpha 10 and in 55 % for 1,000 (rank
    20: 4 % and 3 %). :meth:`fidelity` shows it. ``steady`` multiplies alpha by (1 - delta)^(1 - r) at rank r: what has
    not been selected keeps its score, and nothing else changes; at alpha 1,000 the shares are 69 % and 34 %. The alpha
    that keeps the error of K ranks below a bound then no longer grows like 2^K (the paper's Theorem 2, for distinct
    scores), but no remedy sharpens an alpha too small for rank 1.

    A document may have weight at several ranks, and a column of E a sum above 1: nDCG then exceeds 1 (by .25 for one
    relevant document 4 ahead of a single other one, at alpha 1), and where the margin grows further its gradient
    changes sign, which keeps scores together.

    Tied scores, which the paper excludes, have no limit: their indicators stay shared at the first of their ranks, and
    all of them are eliminated in part. The rows sum to one but are not unimodal, as the paper's section 6 has it:
    unless alpha is large, the largest entries of several rows are those of one document.

    Source: Thonet, Cinar, Gaussier, Li and Renders, "SmoothI: Smooth Rank Indicators for Differentiable IR Metrics",
    2021.

    Memory grows with B x N, not with the depth, unless ``stop_gradient`` is off. On a CPU, time stops growing with
    depth once logits suit the closed form (about 100 ranks at alpha 1).

    >>> scores, mask = torch.tensor([[1.0, 4.0]]).log(), torch.ones(1, 2, dtype=torch.bool)
    >>> SmoothI().indicators(scores, mask, depth=1)  # e^0 and e^(ln 4), over their sum
    tensor([[[0.2000, 0.8000]]])

    Args:
        alpha: inverse temperature; exact as it grows.
        delta: how far below zero a selected document is pushed, from 0 and below 1 (the paper's range is 0 to 0.5).
        stop_gradient: whether C counts as constant (Eq 9), as in the paper's experiments.
        steady: whether alpha makes up for the decay of documents that have not been selected; False in the paper.
    """

    gain_of = "ranks"

    def __init__(
        self, alpha: Positive = 1.0, delta: Rate = 0.1, stop_gradient: bool = True, steady: bool = False
    ) -> None:
        self.alpha, self.delta, self.stop_gradient, self.steady = alpha, delta, stop_gradient, steady

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
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
        sums, expectations = shifted.new_zeros((len(shifted), 2, shifted.shape[1])), []
        slopes = weights * math.log(2) if exponential else weights
        for part in _Recursion(pads, self, weights.shape[1]).parts(shifted.detach()):
            expected, slope = part.expected(values), slopes[:, part.ranks]
            expectations.append(expected)
            if shifted.requires_grad:
                slope = slope * expected.exp2() if exponential else slope
                part.add(sums, torch.stack([slope, slope * expected], dim=1))
        expected = torch.cat(expectations, dim=1)
        value = (weights * (expected.exp2() - 1 if exponential else expected)).sum(dim=1)
        return WithGradient.apply(shifted, value, _gradient(sums, values))

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
    pads: Tensor
    relaxation: SmoothI
    depth: int

    def parts(self, shifted: Tensor) -> Iterator[_Chunk | _Late]:
        """The ranks in order; a chunk's tensors are overwritten by the next chunk."""
        eliminate = -1 / (1 - self.relaxation.delta)
        steps = self._steps(shifted)
        # half of the usual for each of two tensors that a rank writes and the next one reads
        chunks = list(blocks(steps, 2 * shifted.numel(), shifted))
        size = chunks[0].stop if chunks else 0
        all_rows = shifted.new_empty((size, *shifted.shape))
        all_kept = shifted.new_empty((size + 1, *shifted.shape))
        alphas = self.relaxation._alpha(torch.arange(self.depth, dtype=shifted.dtype, device=shifted.device))
        at_once = in_one_kernel(shifted)
        all_kept[:1] = 1
        for ranks in chunks:
            rows, kept = all_rows[: ranks.stop - ranks.start], all_kept[: ranks.stop - ranks.start + 1]
            if at_once:
                launch(self.pads, shifted, alphas[ranks], eliminate, rows, kept)
            else:
                factors = [self.relaxation._alpha(rank) for rank in range(ranks.start, ranks.stop)]
                step_by_step(self.pads, shifted, factors, eliminate, rows, kept)
            yield _Chunk(ranks, rows, kept[:-1], alphas[ranks])
            all_kept[0].copy_(kept[-1])
        if steps < self.depth:
            used = (self.pads == 0).to(shifted.dtype)
            yield _late(slice(steps, self.depth), shifted, all_kept[0] * used, used, alphas[steps:], eliminate)

    def _steps(self, shifted: Tensor) -> int:
        """How many ranks to go through one by one; the logits of the others are small, see :class:`_Late`.

        A rank multiplies C by a number from -delta to 1 - delta. Only on a CPU is the largest score known at once.
        """
        shrinks = max(self.relaxation.delta, 1 - self.relaxation.delta)
        if shifted.device.type != "cpu" or not shifted.numel() or self.relaxation.steady or shrinks == 1:
            return self.depth
        largest = self.relaxation.alpha * float(shifted.amax())
        small = math.sqrt(torch.finfo(shifted.dtype).eps)
        if not math.isfinite(largest):
            return self.depth
        return 0 if largest <= small else min(self.depth, math.ceil(math.log(small / largest, shrinks)))


@dataclass
class _Chunk:
    """Some ranks: indicators and C without its decay, ``[ranks, B, N]``, alpha ``[ranks]``."""

    ranks: slice
    rows: Tensor
    kept: Tensor
    alphas: Tensor

    def expected(self, values: Tensor) -> Tensor:
        """``e_v``, ``[B, ranks]``."""
        return torch.bmm(values[:, None, :], self.rows.permute(1, 2, 0)).squeeze(1)

    def add(self, sums: Tensor, weights: Tensor) -> None:
        """Adds ``sum_r w_r m_r`` of the moves ``m = alpha E C``, by weights ``[B, 2, ranks]``; overwrites the rows."""
        sums.baddbmm_(weights * self.alphas, self.rows.mul_(self.kept).transpose(0, 1))


@dataclass
class _Late:
    r"""The ranks at which every logit x is below the square root of the rounding unit, in closed form.

    To within rounding :math:`E = (1 + x - \bar x) / n`, and C without its decay shrinks by
    :math:`1 - 1 / ((1 - \delta) n)` per rank, so that x is one vector times a factor per rank.

    Attributes:
        ranks: which ranks.
        factors: what x is multiplied by at a rank, with alpha, ``[B, ranks]``.
        kept: C / n, zero where padded, ``[B, N]``.
        apart: ``x - mean x`` for a factor of 1, ``[B, N]``.
        shares: 1/n, zero where padded, ``[B, N]``.
    """

    ranks: slice
    factors: Tensor
    kept: Tensor
    apart: Tensor
    shares: Tensor

    def expected(self, values: Tensor) -> Tensor:
        values = values * self.shares
        return values.sum(dim=1, keepdim=True) + self.factors * (values * self.apart).sum(dim=1, keepdim=True)

    def add(self, sums: Tensor, weights: Tensor) -> None:
        weights = weights * self.factors[:, None, :]
        steep = (weights * self.factors[:, None, :]).sum(dim=2, keepdim=True)
        sums += self.kept[:, None, :] * (weights.sum(dim=2, keepdim=True) + steep * self.apart[:, None, :])


def _late(ranks: slice, shifted: Tensor, kept: Tensor, used: Tensor, alphas: Tensor, eliminate: float) -> _Late:
    """The late ranks, from S, C without its decay at the first of them, and alpha at each."""
    count = used.sum(dim=1, keepdim=True).clamp_(min=1)
    factors = alphas * (1 + eliminate / count) ** torch.arange(len(alphas), dtype=count.dtype)
    logits, kept, shares = shifted * kept, kept / count, used / count
    return _Late(ranks, factors, kept, logits - (logits * shares).sum(dim=1, keepdim=True), shares)


def _gradient(sums: Tensor, values: Tensor) -> Tensor:
    """``sum_r w_r de_r/ds``, as a rank adds ``w_r m_j (v_j - e_r)``, from the sums of ``w m`` and ``w e m``."""
    return values * sums[:, 0] - sums[:, 1]


class _Expected(torch.autograd.Function):
    """``e_v[r]`` of every rank; backward by a second run of the recursion."""

    @staticmethod
    def forward(ctx: Any, shifted: Tensor, values: Tensor, recursion: _Recursion) -> Tensor:
        result = torch.cat([part.expected(values) for part in recursion.parts(shifted)], dim=1)
        ctx.recursion = recursion
        ctx.save_for_backward(shifted, values, result)
        return result

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        shifted, values, expected = ctx.saved_tensors
        sums = shifted.new_zeros((shifted.shape[0], 2, shifted.shape[1]))
        weights = torch.stack([gradient, gradient * expected], dim=1)
        for part in ctx.recursion.parts(shifted):
            part.add(sums, weights[:, :, part.ranks])
        return _gradient(sums, values), None, None
