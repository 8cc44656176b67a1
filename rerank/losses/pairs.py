"""Sums over ordered pairs of documents, with O(N) memory for the backward pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rerank.relaxations.random import uniform

CHUNK = 1 << 17  # elements of a block of pairs: fits a core's cache, and bounds memory for long lists

Weight = Callable[[slice], Tensor]
"""Rows of documents -> ``[B, rows, N]`` (bool or float): the weight of every pair (row, column)."""

PairLoss = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Differences ``s_i - s_j`` -> (loss, derivative), of the same shape."""


def has_ordered_pair(labels: Tensor, mask: Tensor | None) -> Tensor:
    """Which lists hold two documents of unequal labels: ``[B]`` bool."""
    if mask is None:
        mask = torch.ones_like(labels, dtype=torch.bool)
    labels = labels.double()
    highest = labels.masked_fill(~mask, -torch.inf).amax(dim=1)
    lowest = labels.masked_fill(~mask, torch.inf).amin(dim=1)
    return highest > lowest


def take(order: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Each ``[B, N]`` tensor with its documents in this order (``[B, K]`` positions)."""
    return tuple(tensor.gather(1, order) for tensor in tensors)


def random_order(values: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
    """``[B, N]`` positions of the documents by descending value, ties at random, padding last."""
    shuffled = uniform(seeds, mask).masked_fill(~mask, 2.0).argsort(dim=1)
    ordered = values.masked_fill(~mask, -torch.inf).gather(1, shuffled).argsort(dim=1, descending=True, stable=True)
    return shuffled.gather(1, ordered)


def by_label(labels: Tensor, mask: Tensor) -> tuple[Tensor, int]:
    """The documents by descending label, padding last, and how many can be the better one of a pair.

    On a GPU the second number is N: to know better, the host would have to wait for the device.
    """
    real = labels.masked_fill(~mask, -torch.inf)
    order = real.argsort(dim=1, descending=True, stable=True)
    if labels.device.type != "cpu":
        return order, labels.shape[1]
    lowest = labels.masked_fill(~mask, torch.inf).amin(dim=1, keepdim=True)
    return order, int((real > lowest).sum(dim=1).amax())


def logistic(difference: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """``ln(1 + e^(-sigma * difference))`` and its derivative."""
    return softplus(-sigma * difference), -sigma * torch.sigmoid(-sigma * difference)


def pair_sum(scores: Tensor, rows: int, weight: Weight, loss: PairLoss) -> tuple[Tensor, Tensor]:
    r"""``[B]`` sums over pairs :math:`\sum_{i \le rows, j} w_{ij} \ell(s_i - s_j)` and :math:`\sum w_{ij}`.

    Loss and gradient are computed in one pass over blocks of rows, so that the graph keeps one ``[B, N]`` tensor.
    """
    return _PairSum.apply(scores, rows, weight, loss)


class _PairSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, rows, weight, loss):  # type: ignore[no-untyped-def]
        total, weights = scores.new_zeros(len(scores)), scores.new_zeros(len(scores))
        gradient = torch.zeros_like(scores)
        step = max(1, CHUNK // max(1, scores.numel()))
        for start in range(0, rows, step):
            block = slice(start, min(start + step, rows))
            w = weight(block)
            value, slope = loss(scores[:, block, None] - scores[:, None, :])
            total += (w * value).sum(dim=(1, 2))
            weights += w.sum(dim=(1, 2))
            slope = w * slope
            gradient[:, block] += slope.sum(dim=2)
            gradient -= slope.sum(dim=1)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(weights)
        return total, weights

    @staticmethod
    def backward(ctx, total, weights):  # type: ignore[no-untyped-def]
        (gradient,) = ctx.saved_tensors
        return gradient * total[:, None], None, None, None
