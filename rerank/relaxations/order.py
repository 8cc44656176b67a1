"""Exact order: descending scores, pads last, ties in index order or at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def order_of(scores: Tensor, mask: Tensor, seeds: Tensor | None = None, shuffle: bool = False) -> Tensor:
    """The documents by descending score, real ones first.

    Args:
        scores: ``[B, N]``.
        mask: ``[B, N]`` bool, True for real documents.
        seeds: ``[B]`` int64 or None, for ``shuffle``.
        shuffle: break ties at random; otherwise the document that comes first in the list stays first.

    Returns:
        ``[B, N]`` int64 indices.
    """
    from rerank.relaxations.random import uniform

    keys = scores.detach().masked_fill(~mask, -float("inf"))
    ordered, order = keys.sort(dim=1, descending=True, stable=True)
    if not shuffle:
        return order
    if scores.device.type == "cpu":  # elsewhere the answer would have to be waited for
        again = ordered[:, 1:] == ordered[:, :-1]
        if not again.logical_and_(mask.gather(1, order[:, 1:])).any():
            return order
    permutation = uniform(seeds, mask).masked_fill(~mask, 2.0).argsort(dim=1, stable=True)
    order = keys.gather(1, permutation).argsort(dim=1, descending=True, stable=True)
    return permutation.gather(1, order)


def ranks_of(order: Tensor) -> Tensor:
    """The rank, from 1, of every document under an order: ``[B, N]`` int64."""
    import torch

    positions = torch.arange(1, order.shape[1] + 1, device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, positions)


def lowest(scores: Tensor) -> float:
    """A logit for pads: no weight beside real documents, finite so that a list of pads alone stays finite."""
    import torch

    return torch.finfo(scores.dtype).min / 4


def first(mask: Tensor) -> Tensor:
    """Which ranks there are, ``[B, N]`` bool: as many of the first as the list has real documents."""
    import torch

    return torch.arange(mask.shape[1], device=mask.device) < mask.sum(dim=1, keepdim=True)
