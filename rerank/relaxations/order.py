"""Exact order: descending scores, pads last, ties in index order or by random numbers of the list."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2 = -7723592293110705685  # 0x94D049BB133111EB

FEW = 16
"""Length of lists up to which leaving documents out costs more than computing all."""


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right logically: torch's shift is arithmetic and would smear the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """Apply the output function of SplitMix64 (Steele, Lea and Flood 2014), a bijection that scatters counters."""
    x = (x ^ _shift(x, 30)) * _MIX1
    x = (x ^ _shift(x, 27)) * _MIX2
    return x ^ _shift(x, 31)


def uniform(seeds: Tensor | None, mask: Tensor) -> Tensor:
    """Draw uniform numbers in the open interval (0, 1), one per document: ``[B, N]`` float32, multiples of 2^-24.

    A number depends on the list's seed (drawn from torch's generator if there are none) and on the index of the
    document among the real documents of its list. It does not depend on batch mates, padding, device and process count.
    """
    import torch

    if seeds is None:
        seeds = torch.randint(2**63 - 1, mask.shape[:1], device=mask.device)
    streams = _mix(_mix(seeds + _GOLDEN))
    bits = _shift(_mix(streams[:, None] + mask.cumsum(dim=1) * _GOLDEN), 41)
    return (bits.float() + 0.5) * 2.0**-23


def order_of(
    scores: Tensor, mask: Tensor, seeds: Tensor | None = None, shuffle: bool = False, depth: int | None = None
) -> Tensor:
    """List the first documents by descending score, real ones before pads: ``[B, depth]`` int64, all if depth is None.

    Tied documents keep the order of the list. With ``shuffle`` the seeds of the lists draw it.
    """
    keys = scores.detach().masked_fill(~mask, -float("inf"))
    ordered, order = keys.sort(dim=1, descending=True, stable=True)
    tied = ordered[:, 1:] == ordered[:, :-1]
    if shuffle and (scores.device.type != "cpu" or (tied & first(mask)[:, 1:]).any()):  # a GPU's answer takes long
        permutation = uniform(seeds, mask).masked_fill(~mask, 2.0).argsort(dim=1, stable=True)
        order = keys.gather(1, permutation).argsort(dim=1, descending=True, stable=True)
        order = permutation.gather(1, order)
    return order[:, :depth]


def ranks_of(order: Tensor) -> Tensor:
    """Compute the rank, from 1, of every document under an order: ``[B, N]`` int64."""
    import torch

    positions = torch.arange(1, order.shape[1] + 1, device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, positions)


def places_of(chosen: Tensor) -> Tensor:
    """List the places of the chosen documents, filled up with others: ``[B, N]`` bool to ``[B, R]`` int64.

    On a CPU, R is the largest number of chosen documents in the batch; in short lists, and on a GPU, whose answer would
    take long, it is N. Then the places are in index order.
    """
    import torch

    count = chosen.shape[1]
    if chosen.device.type == "cpu" and chosen.numel() and count > FEW:
        count = min(count, max(1, int(chosen.sum(dim=1).max())))
    if count == chosen.shape[1]:
        return torch.arange(count, device=chosen.device).expand(chosen.shape)
    return chosen.to(torch.float32).topk(count, dim=1).indices


def lowest(scores: Tensor) -> float:
    """Return a logit for pads: no weight beside real documents, but finite, so that a list of pads stays finite."""
    import torch

    return torch.finfo(scores.dtype).min / 4


def first(mask: Tensor, depth: int | None = None) -> Tensor:
    """Tell for which of the ranks 1 to depth (None: N) a list has documents: ``[B, depth]`` bool."""
    import torch

    ranks = torch.arange(mask.shape[1] if depth is None else depth, device=mask.device)
    return ranks < mask.sum(dim=1, keepdim=True)
