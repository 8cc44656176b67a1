"""Ranks as sums over pairs, Approx and twin-sigmoid: sigmoids forward, sigmoids or twin-sigmoid weights backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from rerank.relaxations.backward import full_precision
from rerank.relaxations.base import Batch, SoftRanks, Spread, steepness
from rerank.relaxations.order import blocks
from rerank.settings.ranges import Positive

Gradient = Literal[1, 2, 3]

SMALL = 1 << 16
"""Pairs of documents up to which it costs less to keep them for the backward pass than to compute them anew."""


def _steepness(alpha: float | Spread, batch: Batch) -> float | Tensor:
    """What multiplies differences of scores, ``[B, R, N]``: alpha, or one for each list, which counts as constant."""
    return steepness(batch.spread)[:, :, None] if isinstance(alpha, str) else alpha


def _blocks(batch: Batch) -> Iterator[slice]:
    return blocks(batch.rows.shape[1], batch.scores.numel(), batch.scores)


def _behind(batch: Batch, own: Tensor, alpha: float | Tensor) -> Tensor:
    """``sigmoid(alpha (s_j - s_i))`` for rows i and all j, ``[B, R, N]``; 0 where j is a pad."""
    return (batch.rivals[:, None, :] - own[:, :, None]).mul_(alpha).sigmoid_()


class _Ranks(torch.autograd.Function):
    """Given ranks in the forward pass; in the backward pass ``dr_i/ds_i = -sum_j w_ij`` and ``dr_i/ds_j = w_ij``.

    With z = sigmoid(alpha (s_i - s_j)) and u = sign(y_i - y_j) the weight w_ij is alpha z (1 - z) for gradient 1, u
    times that for 2, and 2 alpha (1 - z), -2 alpha z or 0 for 3. The weights are computed anew rather than kept.
    """

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, ranks: Tensor, batch: Batch, alpha: float | Tensor, gradient: Gradient
    ) -> Tensor:
        ctx.batch, ctx.alpha, ctx.gradient = batch, alpha, gradient
        return ranks

    @staticmethod
    @full_precision
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, None, None, None, None]:
        batch: Batch = ctx.batch
        own, own_labels = batch.at_rows(batch.scores.detach()), batch.at_rows(batch.labels)
        total = torch.zeros_like(batch.scores)
        for rows in _blocks(batch):
            behind = _behind(batch, own[:, rows], ctx.alpha)  # this is 1 - z
            if ctx.gradient == 3:
                sign = (own_labels[:, rows, None] - batch.labels[:, None, :]).sign_()
                # u = 1: 1 - z; u = -1: -z = (1 - z) - 1; u = 0: 0
                weights = behind.sub_((sign < 0).to(behind.dtype)).mul_(sign.abs_()).mul_(2 * ctx.alpha)
            else:
                weights = behind.addcmul_(behind, behind, value=-1).mul_(ctx.alpha)
                if ctx.gradient == 2:
                    weights.mul_((own_labels[:, rows, None] - batch.labels[:, None, :]).sign_())
            slope = slopes[:, rows].contiguous()
            total += torch.bmm(slope[:, None, :], weights).squeeze(1)
            total.scatter_add_(1, batch.rows[:, rows], -slope * weights.sum(dim=2))
        return total.masked_fill_(~batch.mask, 0.0), None, None, None, None


class Approx(SoftRanks):
    r"""Ranks by pairwise sigmoids (Qin, Liu and Li 2010; Bruch, Zoghi, Bendersky and Najork 2019, Eqs 5 and 6).

    .. math:: r_i = 1 + \sum_{j \ne i} \sigma(\alpha (s_j - s_i)), \quad T_i = \sigma(\beta (k - r_i))

    T is how far document i is within the cut-off k. Tied documents share the mean of their ranks. Only the rows of
    relevant documents are computed, and nothing of size rows x N is kept for the backward pass.

    These are the papers' formulas. The document at rank k counts half, however large alpha and beta are;
    ``half_rank`` compares with k + 1/2 instead, so that the limit is the exact measure. Neither learns at a cut-off
    from scores that are close together: of 150 tied documents each has rank 75.5, where T is 0. ``alpha="spread"``,
    which is ours as well, takes

    .. math:: \alpha = \frac{3}{\min(1, \mathrm{sd}(s))}, \quad T_i = \sigma\bigl(\alpha (s_i - c)\bigr)

    with sd the spread of the list's scores (at least .001) and c midway between the k-th score and the next. The spread
    counts as constant; the gradient of c is shared by documents near it, in proportion to the slope of T. AP and RR
    then compare scores, too. Scores further apart still make the ranks sharper, so that the limit is the exact measure.

    >>> mask, rows = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0, 1]])
    >>> batch = Batch(torch.tensor([[1.0, 4.0]]).log(), torch.tensor([[1.0, 0.0]]), mask, rows)
    >>> Approx(alpha=1).ranks(batch)  # scores of 0 and ln 4, and sigmoid(ln 4) = 4/5: 1 + 4/5 and 1 + 1/5
    tensor([[1.8000, 1.2000]])

    Args:
        alpha: steepness of the sigmoids over scores; exact as it grows. 10 is what Bruch et al. settle on; "spread"
            takes it from the spread of scores.
        beta: steepness of the sigmoids over ranks (cut-off, AP, RR). None takes alpha; with ``alpha="spread"``, scores
            are compared in place of ranks.
        half_rank: whether ranks are compared with k + 1/2, midway between the last rank within the cut-off and the
            next, and not with k as in Qin et al.
    """

    def __init__(self, alpha: Positive | Spread = 10.0, beta: Positive | None = None, half_rank: bool = False) -> None:
        self.alpha = alpha
        given = alpha if beta is None else beta
        self.by_scores = isinstance(given, str)
        if not isinstance(given, str):
            self.beta = given
        self.cutoff_shift = 0.5 if half_rank or self.by_scores else 0.0

    def ranks(self, batch: Batch) -> Tensor:
        alpha = _steepness(self.alpha, batch)
        if batch.rows.numel() * batch.scores.shape[1] <= SMALL:
            rivals = batch.scores.masked_fill(~batch.mask, -torch.inf)[:, None, :]
            return 0.5 + (alpha * (rivals - batch.at_rows(batch.scores)[:, :, None])).sigmoid().sum(dim=2)
        own = batch.at_rows(batch.scores.detach())
        ranks = torch.empty_like(own)
        for rows in _blocks(batch):
            ranks[:, rows] = _behind(batch, own[:, rows], alpha).sum(dim=2)
        ranks += 0.5  # one for the rank's base, less a half for the pair (i, i)
        return _Ranks.apply(batch.scores, ranks, batch, alpha, 1)

    def identity(self) -> dict[str, Any]:
        """Without ``half_rank``: it tells at a cut-off alone, where :class:`DirectMetric` says so."""
        return {name: value for name, value in super().identity().items() if name != "half_rank"}


class TwinSigmoid(SoftRanks):
    r"""Exact ranks with the gradient of a second, smooth sigmoid (Yu, "Optimize What You Evaluate With", 2020).

    The forward pass has the exact rank, ties broken at random (Eq 12 with tie breaking), so that the value is the
    exact measure. With :math:`z = \sigma(\alpha (s_i - s_j))` and :math:`u = \operatorname{sign}(y_i - y_j)` the
    backward pass has

    .. math:: \frac{\partial r_i}{\partial s_i} = -\sum_{j \ne i} w_{ij}, \quad
        \frac{\partial r_i}{\partial s_j} = w_{ij}

    where w is :math:`\alpha z (1 - z)` for gradient 1 (Eq 11), u times that for 2 (Eq 20), and for 3 (Eq 21)
    :math:`2 \alpha (1 - z)` if u > 0, :math:`-2 \alpha z` if u < 0, else 0. Only the rows of
    relevant documents are computed: time is linear in relevant documents x N.

    The cut-off takes the exact rank and has no gradient, so that a list whose relevant documents are all beyond it
    teaches nothing. ``alpha="spread"`` is ours, and what this library's evidence is about: alpha is 3 / min(1, sd(s)),
    with sd the spread of the list's scores (at least .001, constant), and the cut-off has the gradient of
    :math:`\sigma(\alpha (s_i - c))`, with c as for Approx. The value stays the exact measure.

    >>> scores = torch.tensor([[1.0, 4.0]]).log().requires_grad_()
    >>> mask, rows = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0]])
    >>> ranks = TwinSigmoid(gradient=1, alpha=1).ranks(Batch(scores, torch.tensor([[1.0, 0.0]]), mask, rows))
    >>> ranks.tolist(), torch.autograd.grad(ranks, scores)  # exact; z (1 - z) with z = sigmoid(-ln 4) = 1/5
    ([[2.0]], (tensor([[-0.1600,  0.1600]]),))

    Args:
        gradient: which backward weight, 1, 2 or 3.
        alpha: steepness of the backward sigmoid; 1 in the paper. "spread" takes it from the spread of scores.
    """

    exact_ranks = True

    def __init__(self, gradient: Gradient = 3, alpha: Positive | Spread = 1.0) -> None:
        self.gradient, self.alpha, self.by_scores = gradient, alpha, isinstance(alpha, str)

    def ranks(self, batch: Batch) -> Tensor:
        alpha = _steepness(self.alpha, batch)
        return _Ranks.apply(batch.scores, batch.at_rows(batch.exact), batch, alpha, self.gradient)
