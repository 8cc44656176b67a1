"""Exact order: descending scores, pads last, ties in index order or by random numbers that belong to a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from rerank.storage.arrow import Array


Numbers: TypeAlias = Any
"""A tensor, or an array, of int64: the arithmetic is the same."""

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2 = -7723592293110705685  # 0x94D049BB133111EB

FEW = 16
"""Documents of which it costs more to leave some out than to compute them all."""

INDEX = 9
"""Bits beside a float's 32 and a draw's 23, for the index of a document."""

LAST = 0x7FFFFFFF << 32
"""Behind every number of a real document."""


def _shift(x: Numbers, bits: int) -> Numbers:
    """Logical right shift: torch's is arithmetic and would smear the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _half_mixed(x: Numbers) -> Numbers:
    return (x ^ _shift(x, 30)) * _MIX1


def _mix(x: Numbers) -> Numbers:
    """The output function of SplitMix64 (Steele, Lea and Flood 2014), a bijection that scatters counters."""
    x = _half_mixed(x)
    x = (x ^ _shift(x, 27)) * _MIX2
    return x ^ _shift(x, 31)


def drawn(seeds: Tensor | None, mask: Tensor) -> Tensor:
    """The seeds of lists; where there are none, they are drawn from torch's generator."""
    import torch

    return torch.randint(2**63 - 1, mask.shape[:1], device=mask.device) if seeds is None else seeds


def bits(seeds: Numbers, places: Numbers, draw: int = 0) -> Numbers:
    """Random numbers of 23 bits, one per document, ``[B, N]`` int64; what :func:`uniform` makes its own of.

    Of tensors, or of arrays, which is faster for small ones: seeds ``[B]``, and the place of every document among the
    real ones of its list, from 1, ``[B, N]`` or, where it is the same in all lists, ``[1, N]``.
    """
    stream = _mix(_mix(seeds + _GOLDEN) + draw)
    x = _half_mixed(stream[:, None] + places * _GOLDEN)
    return _shift((x ^ _shift(x, 27)) * _MIX2, 41)  # the last step of _mix does not reach the upper 31 bits


def uniform(seeds: Tensor | None, mask: Tensor, draw: int = 0) -> Tensor:
    """Uniform numbers in the open interval (0, 1), one per document: ``[B, N]`` float32, multiples of 2^-24.

    A number depends on the list's seed, on the index of the document among the real documents of its list and on which
    of several independent draws it is; batch mates, padding, device and process count change nothing.
    """
    return (bits(drawn(seeds, mask), mask.cumsum(1), draw).float() + 0.5) * 2.0**-23


def gumbel(seeds: Tensor | None, mask: Tensor, draw: int = 0) -> Tensor:
    """Standard Gumbel numbers, one per document: ``-log(-log(u))`` of :func:`uniform`."""
    return -(-uniform(seeds, mask, draw).log()).log()


def order_of(
    scores: Tensor, mask: Tensor, seeds: Tensor | None = None, shuffle: bool = False, depth: int | None = None
) -> Tensor:
    """The first documents by descending score, real ones before pads: ``[B, depth]`` int64, all if depth is None.

    Of tied ones the document that comes first in the list stays first; with ``shuffle`` the order is drawn by the
    seeds of the lists.
    """
    import torch

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
