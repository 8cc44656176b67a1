"""Chunks: pairs sorted by length and cut, the longest first."""

from __future__ import annotations

import numpy as np

from rerank.storage.arrow import Array

ENOUGH = 8
"""A chunk has at least this part (an eighth) of the budget before it ends for the sake of shorter pairs."""


def pack(lengths: Array, budget: int) -> list[Array]:
    """Cut pairs of ``[n]`` tokens into chunks of similar length.

    A chunk ends where the budget of padded tokens does, or earlier where what follows is shorter by a quarter and there
    are enough for a matrix product to be efficient: padding costs as much as text. A longer pair is alone.

    Returns:
        Chunks of positions into ``lengths``, longest first (so that a lack of memory shows at once); ties keep their
        order.
    """
    order = np.argsort(-lengths, kind="stable")
    chunks, start = [], 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        chunk = order[start : start + max(1, budget // longest)]
        enough = max(1, budget // ENOUGH // longest)
        shorter = np.flatnonzero(lengths[chunk] < 0.75 * longest)
        if len(shorter):
            chunk = chunk[: max(enough, int(shorter[0]))]
        chunks.append(chunk)
        start += len(chunk)
    return chunks


def fill(lengths: Array, budget: int) -> list[Array]:
    """Cut pairs that lie end to end into as few chunks as a budget allows: none of their tokens is padding.

    They are sorted as by :func:`pack`: what would be padded after all, in float32 on a GPU, is of similar length.
    """
    order = np.argsort(-lengths, kind="stable")
    ends = lengths[order].cumsum()
    chunks, start = [], 0
    while start < len(order):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + budget, side="right")))
        chunks.append(order[start:stop])
        start = stop
    return chunks
