"""Ranks as sums over pairs of documents: Approx and twin-sigmoid."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rerank.relaxations.base import Adaptive, Batch, SoftRanks, steepness
from rerank.settings.arguments import Positive

Gradient = Literal[1, 2, 3]


def _behind(alpha: float | Adaptive, batch: Batch) -> Tensor:
    """Compute ``alpha (s_j - s_i)`` for rows i and all j, ``[B, R, N]``: how far document i is behind j."""
    factor = steepness(batch.spread)[:, :, None] if isinstance(alpha, str) else alpha
    return factor * (batch.scores[:, None, :] - batch.at_rows(batch.scores)[:, :, None])


class Approx(SoftRanks):
    r"""Ranks by pairwise sigmoids (Qin, Liu and Li 2010; Bruch, Zoghi, Bendersky and Najork 2019, Eqs 5 and 6).

    .. math:: r_i = 1 + \sum_{j \ne i} \sigma(\alpha (s_j - s_i)), \quad T_i = \sigma(\beta (k - r_i))

    T is how far document i is within the cut-off k. Tied documents share the mean of their ranks. Only the rows of
    relevant documents are computed: time and memory grow with relevant documents x N.

    These are the papers' formulas. The document at rank k counts half, however large alpha and beta are. At a cut-off
    nothing is learned from scores that are close together: of 150 tied documents each has rank 75.5, with T = 0.
    ``alpha="adaptive"``, which is not from the papers, takes

    .. math:: \alpha = \frac{3}{\min(1, \mathrm{sd}(s))}, \quad T_i = \sigma\bigl(\alpha (s_i - c)\bigr)

    with sd the spread of the list's scores (at least .001) and c midway between the k-th score and the next. The spread
    counts as constant; the gradient of c is shared by documents near it, in proportion to the slope of T. AP and RR
    then compare scores, too. Scores further apart still make the ranks sharper, so that the limit is the exact measure.

    >>> mask, rows = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0, 1]])
    >>> batch = Batch(torch.tensor([[1.0, 4.0]]).log(), torch.tensor([[1.0, 0.0]]), mask, rows)
    >>> Approx(alpha=1).ranks(batch)  # scores of 0 and ln 4, and sigmoid(ln 4) = 4/5: 1 + 4/5 and 1 + 1/5
    tensor([[1.8000, 1.2000]])

    Args:
        alpha: steepness of the sigmoids over scores; exact as it grows. 10 is what Bruch et al. settle on; "adaptive"
            takes it from the spread of scores.
        beta: steepness of the sigmoids over ranks (cut-off, AP, RR). None takes alpha; with ``alpha="adaptive"``,
            scores are compared in place of ranks.
    """

    def __init__(self, alpha: Positive | Adaptive = 10.0, beta: Positive | None = None) -> None:
        self.alpha = alpha
        over_ranks = alpha if beta is None else beta
        self.by_scores = isinstance(over_ranks, str)
        if not isinstance(over_ranks, str):
            self.beta = over_ranks
        self.cutoff_shift = 0.5 if self.by_scores else 0.0

    def ranks(self, batch: Batch) -> Tensor:
        behind = _behind(self.alpha, batch).masked_fill(~batch.mask[:, None, :], -torch.inf)
        return 0.5 + behind.sigmoid().sum(dim=2)  # the sum has a half too much, for j = i


class TwinSigmoid(SoftRanks):
    r"""Exact ranks with the gradient of a second, smooth sigmoid (Yu, "Optimize What You Evaluate With", 2020).

    The forward pass has the exact rank, ties broken at random (Eq 12 with tie breaking), so that the value is the
    exact measure. With :math:`z = \sigma(\alpha (s_i - s_j))` and :math:`u = \operatorname{sign}(y_i - y_j)` the
    backward pass has

    .. math:: \frac{\partial r_i}{\partial s_i} = -\sum_{j \ne i} w_{ij}, \quad
        \frac{\partial r_i}{\partial s_j} = w_{ij}

    where w is :math:`\alpha z (1 - z)` for gradient 1 (Eq 11), u times that for 2 (Eq 20), and for 3 (Eq 21)
    :math:`2 \alpha (1 - z)` if u > 0, :math:`-2 \alpha z` if u < 0, else 0. Only the rows of
    relevant documents are computed: time and memory grow with relevant documents x N.

    The cut-off takes the exact rank and has no gradient, so that nothing is learned from a list whose relevant
    documents are all beyond it. ``alpha="adaptive"`` is not from the paper: alpha is 3 / min(1, sd(s)), with sd the
    spread of the list's scores (at least .001, constant), and the cut-off has the gradient of
    :math:`\sigma(\alpha (s_i - c))`, with c as for Approx. The value stays the exact measure.

    >>> scores = torch.tensor([[1.0, 4.0]]).log().requires_grad_()
    >>> mask, rows = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0]])
    >>> ranks = TwinSigmoid(gradient=1, alpha=1).ranks(Batch(scores, torch.tensor([[1.0, 0.0]]), mask, rows))
    >>> ranks.tolist(), torch.autograd.grad(ranks, scores)  # exact; z (1 - z) with z = sigmoid(-ln 4) = 1/5
    ([[2.0]], (tensor([[-0.1600,  0.1600]]),))

    Args:
        gradient: which backward weight, 1, 2 or 3.
        alpha: steepness of the backward sigmoid; 1 in the paper. "adaptive" takes it from the spread of scores.
    """

    exact_ranks = True

    def __init__(self, gradient: Gradient = 3, alpha: Positive | Adaptive = 1.0) -> None:
        self.gradient, self.alpha, self.by_scores = gradient, alpha, isinstance(alpha, str)

    def ranks(self, batch: Batch) -> Tensor:
        behind = _behind(self.alpha, batch)  # minus alpha (s_i - s_j)
        sign = (batch.at_rows(batch.labels)[:, :, None] - batch.labels[:, None, :]).sign()
        if self.gradient == 3:
            smooth = 2 * sign.abs() * softplus(sign * behind)
        else:
            smooth = behind.sigmoid() if self.gradient == 1 else behind.sigmoid() * sign
        smooth = smooth.masked_fill(~batch.mask[:, None, :], 0.0).sum(dim=2)
        return batch.at_rows(batch.exact) + (smooth - smooth.detach())
