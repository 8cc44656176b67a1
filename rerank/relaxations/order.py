"""Exact order: descending scores, pads last, ties in index order or at random."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from rerank.storage.arrow import Array

FEW = 16
"""Documents of which it costs more to leave some out than to compute them all."""

INDEX = 9
"""Bits beside a float's 32 and a draw's 23, for the index of a document."""

LAST = 0x7FFFFFFF << 32
"""Behind every number of a real document."""


def order_of(
    scores: Tensor, mask: Tensor, seeds: Tensor | None = None, shuffle: bool = False, depth: int | None = None
) -> Tensor:
    """The first documents by descending score, real ones before pads: ``[B, depth]`` int64, all if depth is None.

    Of tied ones the document that comes first in the list stays first; with ``shuffle`` the order is drawn by the
    seeds of the lists.
    """
    import torch

    from rerank.relaxations.random import drawn, uniform

    depth = scores.shape[1] if depth is None else min(depth, scores.shape[1])
    if shuffle and depth == scores.shape[1] and scores.element_size() == 4 and scores.device.type == "cpu":
        draws, real = drawn(seeds, mask).numpy(), mask.numpy()
        return torch.from_numpy(_shuffled(scores.detach().numpy(), draws, None if real.all() else real))
    keys = scores.detach().masked_fill(~mask, -float("inf"))
    if not shuffle:
        return keys.argsort(dim=1, descending=True, stable=True)[:, :depth]
    if scores.device.type == "cpu":  # shuffled only if there are ties; elsewhere the answer would have to be waited for
        ordered, order = keys.topk(min(depth + 1, scores.shape[1]), dim=1)
        tied = ordered[:, 1:] == ordered[:, :-1]
        if not tied.logical_and_(mask.gather(1, order[:, 1:])).any():
            return order[:, :depth]
    permutation = uniform(seeds, mask).masked_fill(~mask, 2.0).argsort(dim=1, stable=True)
    order = keys.gather(1, permutation).argsort(dim=1, descending=True, stable=True)
    return permutation.gather(1, order[:, :depth])


def _shuffled(keys: Array, seeds: Array, mask: Array | None) -> Array:
    """By descending key, then by ascending draw, then by index, pads last: one sort of one number, ``[B, N]`` int64.

    The bits of positive floats are ordered as these are, and those of negative ones backwards. Where there is room for
    the index, too, the numbers are sorted alone. NumPy does either many times faster than PyTorch sorts stably.
    """
    from rerank.relaxations.random import bits

    index, narrow = np.arange(keys.shape[1]), keys.shape[1] <= 1 << INDEX
    draws = bits(seeds, index[None, :] + 1 if mask is None else mask.cumsum(1))
    own = np.add(keys, 0, dtype=np.float32).view(np.int32)  # 0 for -0
    numbers = (~(own ^ ((own >> 31) & 0x7FFFFFFF))).astype(np.int64) << 32
    numbers |= (draws << INDEX) | index if narrow else draws
    if mask is not None:
        numbers = np.where(mask, numbers, index + (LAST if narrow else LAST - index[-1]))
    if narrow:
        numbers.sort(axis=1)
        return numbers & ((1 << INDEX) - 1)
    order = numbers.argsort(axis=1)
    ordered = np.take_along_axis(numbers, order, axis=1)
    return numbers.argsort(axis=1, kind="stable") if (ordered[:, 1:] == ordered[:, :-1]).any() else order


def ranks_of(order: Tensor) -> Tensor:
    """The rank, from 1, of every document under an order: ``[B, N]`` int64."""
    import torch

    positions = torch.arange(1, order.shape[1] + 1, device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, positions)


def blocks(count: int, each: int, like: Tensor) -> Iterator[slice]:
    """Cuts ``count`` things of ``each`` numbers into blocks that stay in a processor's cache, or fill a GPU."""
    size = max(1, (1 << 18 if like.device.type == "cpu" else 1 << 24) // max(1, each))
    for start in range(0, count, size):
        yield slice(start, min(count, start + size))


def places_of(chosen: Tensor) -> Tensor:
    """Where the chosen documents of every list are, filled up with others: ``[B, N]`` bool to ``[B, R]`` int64.

    On the CPU R is the largest number of them in the batch, unless lists are so short that it costs more to leave some
    out. Elsewhere that number would have to be waited for, so there R is N. Where R is N they are in index order.
    """
    import torch

    count = chosen.shape[1]
    if chosen.device.type == "cpu" and chosen.numel() and count > FEW:
        count = min(count, max(1, int(chosen.sum(dim=1).max())))
    if count == chosen.shape[1]:
        return torch.arange(count, device=chosen.device).expand(chosen.shape)
    return chosen.to(torch.float32).topk(count, dim=1).indices


def lowest(scores: Tensor) -> float:
    """A logit for pads: no weight beside real documents, finite so that a list of pads alone stays finite."""
    import torch

    return torch.finfo(scores.dtype).min / 4


def first(mask: Tensor, depth: int | None = None) -> Tensor:
    """Which of the ranks 1 to depth (None: N) a list has documents for: ``[B, depth]`` bool."""
    import torch

    ranks = torch.arange(mask.shape[1] if depth is None else depth, device=mask.device)
    return ranks < mask.sum(dim=1, keepdim=True)
