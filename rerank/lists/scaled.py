"""z-scores of a column within each list, which depth and sampling do not change."""

from __future__ import annotations

import numpy as np

from rerank.storage.arrow import Array, list_numbers

SCALED = ":z"
"""Between a column and a number of candidates; a column's own name has no colon."""

LARGEST = 1e30
"""Bound of z, so that it is finite in float32."""


def scaled(column: str, depth: int) -> str:
    """Name a column's z over the first ``depth`` candidates, such as ``bm25:z100``."""
    return f"{column}{SCALED}{depth}"


def z_scores(values: Array, offsets: Array, added: Array, depth: int) -> Array:
    r"""Normalise scores with the mean and deviation of the best candidates of each list.

    .. math:: z_i = \frac{x_i - \mu}{\sigma}

    over the first ``depth`` candidates that have a number and were not added (population deviation, in float64). A
    candidate without a number has the lowest z of its list's; all have 0 where nothing varies among those first. An
    added one is no lower than the lowest of the others: lists are cut at a depth, below which only added ones, all of
    them relevant, would be, and a model would learn that low is good.

    >>> z_scores(np.array([3.0, 1.0, np.nan, 7.0]), np.array([0, 3, 4]), np.zeros(4, bool), 100).tolist()
    [1.0, -1.0, -1.0, 0.0]

    Args:
        values: ``[T]``, list after list, best first; NaN where a system did not return the candidate.
        offsets: ``[Q + 1]`` where each list starts, and the last ends.
        added: ``[T]`` whether a candidate was added for training; it counts for nobody but itself.
        depth: candidates of a list whose mean and deviation count.
    """
    if not len(values):
        return np.zeros(0, np.float32)
    offsets = offsets[np.flatnonzero(np.diff(offsets, prepend=-1))]  # without empty lists
    starts, lists = offsets[:-1], len(offsets) - 1
    x, of = values.astype(np.float64), list_numbers(len(values), offsets[:-1])
    known = ~(np.isnan(x) | added)
    found = np.cumsum(known)
    counted = known & (found - (found - known)[starts][of] <= depth)
    count = np.bincount(of, counted, lists)
    mean = np.bincount(of, np.where(counted, x, 0), lists) / np.maximum(count, 1)
    off = x - mean[of]
    deviation = np.sqrt(np.bincount(of, np.where(counted, off, 0) ** 2, lists) / np.maximum(count, 1))
    lowest = np.minimum.reduceat(np.where(counted, x, np.inf), starts)
    highest = np.maximum.reduceat(np.where(counted, x, -np.inf), starts)
    varies = (count > 0) & (lowest < highest)  # a deviation may be above 0 by rounding alone
    z = np.where(varies[of], off / np.where(varies, deviation, 1)[of], 0)
    least = np.minimum.reduceat(np.where(known, z, np.inf), starts)
    z = np.fmax(z, np.where(varies, least, 0)[of])  # what is NaN is the lowest, too
    return np.clip(z, -LARGEST, LARGEST).astype(np.float32)
