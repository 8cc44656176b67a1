"""Ranks as sums over pairs: sigmoids forward, sigmoids or twin-sigmoid weights backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from rerank.relaxations.backward import full_precision
from rerank.relaxations.base import Batch
from rerank.relaxations.order import blocks

Gradient = Literal[1, 2, 3]

SMALL = 1 << 16
"""Pairs of documents up to which it costs less to keep them for the backward pass than to compute them anew."""


def sigmoid_ranks(batch: Batch, alpha: float | Tensor) -> Tensor:
    """``r_i = 1 + sum_{j != i} sigmoid(alpha (s_j - s_i))`` of the documents asked for, ``[B, R]``.

    Alpha is one steepness, or one per list, ``[B, 1]``, which counts as constant.
    """
    alpha = _per_list(alpha)
    if batch.rows.numel() * batch.scores.shape[1] <= SMALL:
        rivals = batch.scores.masked_fill(~batch.mask, -torch.inf)[:, None, :]
        return 0.5 + (alpha * (rivals - batch.at_rows(batch.scores)[:, :, None])).sigmoid().sum(dim=2)
    own = batch.at_rows(batch.scores.detach())
    ranks = torch.empty_like(own)
    for rows in _blocks(batch):
        ranks[:, rows] = _behind(batch, own[:, rows], alpha).sum(dim=2)
    ranks += 0.5  # one for the rank's base, less a half for the pair (i, i)
    return _Ranks.apply(batch.scores, ranks, batch, alpha, 1)


def twin_ranks(batch: Batch, alpha: float | Tensor, gradient: Gradient) -> Tensor:
    """The exact ranks of the documents asked for, ``[B, R]``, with the backward weights of ``gradient``."""
    return _Ranks.apply(batch.scores, batch.at_rows(batch.exact), batch, _per_list(alpha), gradient)


def _per_list(alpha: float | Tensor) -> float | Tensor:
    """To multiply ``[B, R, N]`` with."""
    return alpha[:, :, None] if isinstance(alpha, Tensor) else alpha


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
