"""Chunks: pairs sorted by length and cut, the longest first; on a CPU in few shapes."""

from __future__ import annotations

import os

import numpy as np

from rerank.storage.arrow import Array

ENOUGH = 8
"""A chunk has at least this part (an eighth) of the budget before it ends for the sake of shorter pairs."""

TEXT, CHUNK = 0.02, 0.03
"""How much longer a text may become by it, and a chunk in all: the share of work that is done for nothing."""

ROWS = 8
"""The rows of a chunk's last layer, one for each text, come in multiples of this."""


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


def rounded(length: int, share: float) -> int:
    """The next rung of the ladder: a multiple of the largest power of two that adds no more than a share.

    >>> [rounded(length, 0.02) for length in (49, 51, 149, 150, 151, 509, 2047)]
    [49, 52, 150, 152, 152, 512, 2048]
    >>> max(rounded(length, 0.02) / length for length in range(1, 5000)) <= 1.02
    True
    """
    step = 1 << (int(share * length) + 1).bit_length() - 1
    return -(-length // step) * step


def remember_code() -> None:
    """Let oneDNN keep more of the code that it generated than the 1,024 shapes that it keeps by itself.

    It asks once, when the first product in bf16 is computed, so this comes before that. A user's own setting stays.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")
