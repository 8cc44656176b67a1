"""Sums over ordered pairs of documents, with O(N) memory for the backward pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

CHUNKS = {"cpu": 1 << 17}  # elements of a block of pairs: fits a core's cache, and bounds memory for long lists
CHUNK = 1 << 24  # on a GPU large blocks are the fast ones

Weight = Callable[[slice], Tensor]
"""Rows of documents -> ``[B, rows, N]`` (bool or float): the weight of every pair (row, column)."""

PairLoss = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Differences ``s_i - s_j`` -> (loss, derivative), of the same shape."""


def has_ordered_pair(labels: Tensor, mask: Tensor | None) -> Tensor:
    """Which lists hold two documents of unequal labels: ``[B]`` bool."""
    if mask is None:
        mask = torch.ones_like(labels, dtype=torch.bool)
    labels = labels.float()
    highest = labels.masked_fill(~mask, -torch.inf).amax(dim=1)
    lowest = labels.masked_fill(~mask, torch.inf).amin(dim=1)
    return highest > lowest


def take(order: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Each ``[B, N]`` tensor with its documents in this order (``[B, K]`` positions)."""
    return tuple(tensor.gather(1, order) for tensor in tensors)


def largest(counts: Tensor, limit: int) -> int:
    """The largest count where that is known at once, on a CPU; else the limit, so that no host waits for a device."""
    return int(counts.amax()) if counts.device.type == "cpu" else limit


def by_label(labels: Tensor, mask: Tensor) -> tuple[Tensor, int]:
    """The documents by descending label, padding last, and how many can be the better of a pair (:func:`largest`)."""
    order = labels.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True, stable=True)
    lowest = labels.masked_fill(~mask, torch.inf).amin(dim=1, keepdim=True)
    return order, largest(((labels > lowest) & mask).sum(dim=1), labels.shape[1])


def logistic(difference: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """``ln(1 + e^(-sigma * difference))`` and its derivative."""
    return -logsigmoid(sigma * difference), -sigma * torch.sigmoid(-sigma * difference)


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
        step = max(1, CHUNKS.get(scores.device.type, CHUNK) // scores.numel())
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
