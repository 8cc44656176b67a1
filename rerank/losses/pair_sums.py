"""Sums over pairs of documents, with O(N) memory for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rerank.relaxations.backward import WithGradient
from rerank.relaxations.order import FEW, places_of

HELD = 3
"""Numbers per pair in memory while a block is computed."""

NEVER = -1e30
"""Score difference of a pair that does not count: so low that its loss and its derivative are 0."""

Weight = Callable[[Tensor], Tensor]
"""Maps places of better documents ``[B, R]`` to a new ``[B, R, N]``, the weight of every pair (better, any)."""

PairLoss = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Maps how far better documents are behind, ``s_j - s_i`` (:data:`NEVER` for pairs that do not count), to the loss of
every pair and its derivative, all ``[B, R, N]``."""


def take(order: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Order the documents of each ``[B, N]`` tensor by ``[B, K]`` places."""
    return tuple(tensor.gather(1, order) for tensor in tensors)


def better(values: Tensor, mask: Tensor) -> Tensor:
    """List the places of the documents above the lowest value of their list, filled up with others: ``[B, R]``."""
    if values.shape[1] <= FEW:
        return places_of(mask)
    lowest = values.masked_fill(~mask, torch.inf).amin(dim=1, keepdim=True)
    return places_of((values > lowest) & mask)


def excess(values: Tensor, mask: Tensor) -> Weight:
    """Weigh pairs by ``max(0, v_i - v_j)``, 0 if a document is padding."""
    others, own = values.masked_fill(~mask, torch.inf)[:, None, :], values.masked_fill(~mask, -torch.inf)
    return lambda places: (own.gather(1, places)[:, :, None] - others).clamp_(min=0)


def logistic(behind: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``ln(1 + e^x)`` and its derivative ``sigmoid(x)``."""
    return softplus(behind, threshold=40), behind.sigmoid()


def ordered_mean(
    scores: Tensor, labels: Tensor, mask: Tensor, loss: PairLoss, mean: bool = True
) -> tuple[Tensor, Tensor]:
    r"""Compute the mean of :math:`\ell(s_j - s_i)` over the pairs with :math:`y_i > y_j`, ``[B]``, and its gradient.

    Both are 0 if there is no pair; without ``mean`` the sum is not divided by the number of pairs.
    """
    others, own = labels.masked_fill(~mask, torch.inf)[:, None, :], labels.masked_fill(~mask, -torch.inf)
    total, pairs = scores.new_zeros(2, len(scores))
    gradient = torch.zeros_like(scores)
    for places, behind in _blocks(scores, better(labels, mask)):
        unordered = (own.gather(1, places)[:, :, None] <= others).to(scores.dtype)
        pairs += unordered[0].numel() - unordered.sum(dim=(1, 2))
        value, slope = loss(behind.add_(unordered, alpha=NEVER))
        total += value.sum(dim=(1, 2))
        _add(gradient, places, slope)
    over = pairs.clamp(min=1) if mean else torch.ones_like(pairs)
    return total / over, gradient / over[:, None]


def pair_sum(scores: Tensor, places: Tensor, weight: Weight) -> Tensor:
    r"""Compute :math:`\sum_{i, j} w_{ij} \ln(1 + e^{s_j - s_i})` over the documents i at ``places`` and all j, ``[B]``.

    The gradient is computed with the value, so that the graph keeps one ``[B, N]`` tensor.
    """
    total, gradient = scores.new_zeros(len(scores)), torch.zeros_like(scores)
    for some, behind in _blocks(scores.detach(), places):
        value, slope = logistic(behind)
        weights = weight(some)
        total += value.mul_(weights).sum(dim=(1, 2))
        _add(gradient, some, slope.mul_(weights))
    return WithGradient.apply(scores, total, gradient)


def _blocks(scores: Tensor, places: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield some of the places, as many as suit a cache, and how far these documents are behind, ``[B, R, N]``."""
    together = (1 << 18) if scores.device.type == "cpu" else (1 << 24)
    for some in places.split(max(1, together // max(1, HELD * scores.numel())), dim=1):
        yield some, scores[:, None, :] - scores.gather(1, some)[:, :, None]


def _add(gradient: Tensor, places: Tensor, slope: Tensor) -> None:
    """Add the gradient of pairs by the derivatives of their losses."""
    gradient += slope.sum(dim=1)
    gradient.scatter_add_(1, places, -slope.sum(dim=2))
