"""Sums over pairs of documents, with O(N) memory for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rerank.relaxations.order import blocks

HELD = 8  # numbers that a pair takes while its block is computed

FEW = 16  # documents of which it costs more to leave some out than to pair them all

Weight = Callable[[Tensor], Tensor]
"""Places of better documents ``[B, R]`` -> a new ``[B, R, N]``, the weight of every pair (better, any), 0 for most."""

PairLoss = Callable[[Tensor], tuple[Tensor, Tensor]]
"""How far the better document is behind, ``s_j - s_i`` (to be overwritten) -> its loss and derivative."""


def has_ordered_pair(labels: Tensor, mask: Tensor | None) -> Tensor:
    """Which lists hold two documents of unequal labels: ``[B]`` bool."""
    if mask is None:
        mask = torch.ones_like(labels, dtype=torch.bool)
    labels = labels.float()
    highest = labels.masked_fill(~mask, -torch.inf).amax(dim=1)
    lowest = labels.masked_fill(~mask, torch.inf).amin(dim=1)
    return highest > lowest


def take(order: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Each ``[B, N]`` tensor with its documents in this order (``[B, K]`` places)."""
    return tuple(tensor.gather(1, order) for tensor in tensors)


def largest(counts: Tensor, limit: int) -> int:
    """The largest count where that is known at once, on a CPU; else the limit, so that no host waits for a device."""
    return int(counts.amax()) if counts.device.type == "cpu" else limit


def better(values: Tensor, mask: Tensor) -> Tensor:
    """Places of the documents above the lowest value of their list, filled up with others: ``[B, R]``."""
    if values.shape[1] <= FEW:
        return torch.arange(values.shape[1], device=values.device).expand(values.shape)
    lowest = values.masked_fill(~mask, torch.inf).amin(dim=1, keepdim=True)
    above = (values > lowest) & mask
    count = largest(above.sum(dim=1), values.shape[1])
    if count == values.shape[1]:
        return torch.arange(count, device=values.device).expand(values.shape)
    return above.to(torch.float32).topk(count, dim=1).indices


def excess(values: Tensor, mask: Tensor) -> Weight:
    """The weight ``max(0, v_i - v_j)``, 0 where a document is padding."""
    others, own = values.masked_fill(~mask, torch.inf)[:, None, :], values.masked_fill(~mask, -torch.inf)
    return lambda places: (own.gather(1, places)[:, :, None] - others).clamp_(min=0)


def ordered(values: Tensor, mask: Tensor) -> Weight:
    """The weight 1 where ``v_i > v_j``, else 0; and 0 where a document is padding."""
    others, own = values.masked_fill(~mask, torch.inf)[:, None, :], values.masked_fill(~mask, -torch.inf)

    def weight(places: Tensor) -> Tensor:
        into = values.new_empty(*places.shape, values.shape[1])
        return torch.gt(own.gather(1, places)[:, :, None], others, out=into)

    return weight


def logistic(behind: Tensor) -> tuple[Tensor, Tensor]:
    """``ln(1 + e^x)``, as ``max(0, x) - ln sigmoid(|x|)``, and its derivative ``sigmoid(x)``."""
    wrong = behind.sigmoid()
    surer = (wrong - 0.5).abs_().add_(0.5)  # sigmoid(|x|), at least 1/2, so that its logarithm is safe
    return behind.clamp_(min=0).sub_(surer.log_()), wrong


def pair_sum(scores: Tensor, places: Tensor, weight: Weight, loss: PairLoss) -> tuple[Tensor, Tensor]:
    r"""The sums :math:`\sum_{i, j} w_{ij} \ell(s_j - s_i)` and :math:`\sum_{i, j} w_{ij}`, ``[B]`` each.

    Loss and gradient are computed in one pass over blocks of pairs, so that the graph keeps one ``[B, N]`` tensor.

    Args:
        scores: ``[B, N]``.
        places: ``[B, R]``, the documents i; j is any document.
        weight: the weights of pairs.
        loss: the loss of a pair.
    """
    return _PairSum.apply(scores, places, weight, loss)


class _PairSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, places: Tensor, weight: Weight, loss: PairLoss) -> tuple[Tensor, Tensor]:
        total, weights = scores.new_zeros(len(scores)), scores.new_zeros(len(scores))
        gradient = torch.zeros_like(scores)
        for block in blocks(places.shape[1], HELD * scores.numel(), scores):
            some = places[:, block]
            value, slope = loss(scores[:, None, :] - scores.gather(1, some)[:, :, None])
            weighed = weight(some)
            weights += weighed.sum(dim=(1, 2))
            total += value.mul_(weighed).sum(dim=(1, 2))
            slope.mul_(weighed)
            gradient += slope.sum(dim=1)
            gradient.scatter_add_(1, some, -slope.sum(dim=2))
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(weights)
        return total, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, total: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * total[:, None], None, None, None
