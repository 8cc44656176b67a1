"""Sums over pairs of documents, with O(N) memory for the backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rerank.relaxations.backward import WithGradient
from rerank.relaxations.order import FEW, blocks, places_of

HELD = 3  # numbers that a pair takes while its block is computed

NEVER = -1e30  # how far the better document of a pair that does not count is behind: no loss, no derivative

Weight = Callable[[Tensor], Tensor]
"""Places of better documents ``[B, R]`` -> a new ``[B, R, N]``, the weight of every pair (better, any), 0 for most."""

PairLoss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""How far better documents are behind, ``s_j - s_i`` ``[B, R, C]``, :data:`NEVER` for pairs that do not count, and
another tensor of this size, both to be overwritten -> the losses summed over R and C, and the derivative of each."""


def take(order: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Each ``[B, N]`` tensor with its documents in this order (``[B, K]`` places)."""
    return tuple(tensor.gather(1, order) for tensor in tensors)


def better(values: Tensor, mask: Tensor) -> Tensor:
    """Places of the documents above the lowest value of their list, filled up with others: ``[B, R]``."""
    if values.shape[1] <= FEW:
        return places_of(mask)
    lowest = values.masked_fill(~mask, torch.inf).amin(dim=1, keepdim=True)
    return places_of((values > lowest) & mask)


def excess(values: Tensor, mask: Tensor) -> Weight:
    """The weight ``max(0, v_i - v_j)``, 0 where a document is padding."""
    others, own = values.masked_fill(~mask, torch.inf)[:, None, :], values.masked_fill(~mask, -torch.inf)
    return lambda places: (own.gather(1, places)[:, :, None] - others).clamp_(min=0)


def logistic(behind: Tensor) -> tuple[Tensor, Tensor]:
    """``ln(1 + e^x)``, as ``max(0, x) - ln sigmoid(|x|)``, and its derivative ``sigmoid(x)``."""
    wrong = behind.sigmoid()
    surer = torch.maximum(wrong, 1 - wrong)  # sigmoid(|x|), at least 1/2, so that its logarithm is safe
    return behind.clamp_(min=0).sub_(surer.log_()), wrong


def logistic_sum(behind: Tensor, spare: Tensor) -> tuple[Tensor, Tensor]:
    """The same as a :data:`PairLoss`, with one logarithm for the product of many ``sigmoid(|x|)``."""
    wrong = torch.sigmoid(behind, out=spare)
    total = behind.clamp_(min=0).sum(dim=(1, 2))
    surer = torch.maximum(torch.sub(wrong.new_ones(()), wrong, out=behind), wrong, out=behind)
    for some in surer.split(64, dim=1):  # a product of at least 2^-64
        total -= some.prod(dim=1).log_().sum(dim=1)
    return total, wrong


def ordered_mean(
    scores: Tensor, labels: Tensor, mask: Tensor | None, loss: PairLoss, mean: bool = True
) -> tuple[Tensor, Tensor]:
    r"""The mean of :math:`\ell(s_j - s_i)` over the pairs with :math:`y_i > y_j`, ``[B]``, and its gradient.

    Both are 0 where there is no pair; without ``mean`` the sum is not divided by the number of pairs. They are computed
    in one pass over blocks of pairs: of documents in the order of their labels, so that only later documents are looked
    at, or of all where these are few.
    """
    count = scores.shape[1]
    grades = labels if mask is None else labels.masked_fill(~mask, -torch.inf)
    if count <= FEW:
        others = grades if mask is None else labels.masked_fill(~mask, torch.inf)
        unordered = (grades[:, :, None] <= others[:, None, :]).to(scores.dtype)
        pairs = (count * count - unordered.sum(dim=(1, 2))).clamp_(min=1)
        behind = (scores[:, None, :] - scores[:, :, None]).add_(unordered, alpha=NEVER)
        value, slope = loss(behind, unordered)
        pairs = pairs if mean else torch.ones_like(pairs)
        return value.div_(pairs), (slope.sum(dim=1) - slope.sum(dim=2)).div_(pairs[:, None])
    grades, order = grades.sort(dim=1, descending=True)
    scores = scores.gather(1, order)
    others = grades if mask is None else grades.masked_fill(grades == -torch.inf, torch.inf)
    if scores.device.type == "cpu":  # elsewhere it would be waited for
        count = int((grades > others.amin(dim=1, keepdim=True)).sum(dim=1).amax())
    else:
        count -= 1
    total, pairs = scores.new_zeros(2, len(scores))
    gradient = torch.zeros_like(scores)
    cuts = list(blocks(count, HELD * scores.numel(), scores))
    space = scores.new_empty(2, (cuts[0].stop if cuts else 0) * scores.numel())
    for rows in cuts:
        later = slice(rows.start + 1, None)
        shape = len(scores), rows.stop - rows.start, scores.shape[1] - later.start
        behind, unordered = space[:, : math.prod(shape)].view(2, *shape)
        torch.sub(scores[:, None, later], scores[:, rows, None], out=behind)
        torch.le(grades[:, rows, None], others[:, None, later], out=unordered)
        pairs += shape[1] * shape[2] - unordered.sum(dim=(1, 2))
        value, slope = loss(behind.add_(unordered, alpha=NEVER), unordered)
        total += value
        gradient[:, later].add_(slope.sum(dim=1))
        gradient[:, rows].sub_(slope.sum(dim=2))
    pairs = pairs.clamp_(min=1) if mean else torch.ones_like(pairs)
    gradient.div_(pairs[:, None])
    return total.div_(pairs), torch.empty_like(gradient).scatter_(1, order, gradient)


def pair_sum(scores: Tensor, places: Tensor, weight: Weight) -> Tensor:
    r"""The sum :math:`\sum_{i, j} w_{ij} \ln(1 + e^{s_j - s_i})` over the documents i at ``places`` and all j, ``[B]``.

    Loss and gradient are computed in one pass over blocks of pairs, so that the graph keeps one ``[B, N]`` tensor.
    """
    given = scores.detach()
    total, gradient = given.new_zeros(len(given)), torch.zeros_like(given)
    for block in blocks(places.shape[1], HELD * given.numel(), given):
        some = places[:, block]
        value, slope = logistic(given[:, None, :] - given.gather(1, some)[:, :, None])
        weighed = weight(some)
        total += value.mul_(weighed).sum(dim=(1, 2))
        slope.mul_(weighed)
        gradient += slope.sum(dim=1)
        gradient.scatter_add_(1, some, -slope.sum(dim=2))
    return WithGradient.apply(scores, total, gradient)
