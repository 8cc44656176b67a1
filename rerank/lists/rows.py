"""Rows of the documents that lists need, found by their ids without keeping the ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress

import numpy as np
import pyarrow as pa

from rerank.errors import UserError
from rerank.storage.arrow import Array

PENDING = 1 << 20
"""Hashes that wait to be sorted in with those that are known; more where more are known."""


class Rows:
    """A set of document ids, and the row that each gets when it is found: 20 bytes a document.

    Ids are known by 64-bit hashes. Two ids may share one (in one of 400,000 collections of ten million), hence `of`
    compares every id with the one that is stored in its row.

    Args:
        ids: the ids, some at a time; they may repeat.
    """

    def __init__(self, ids: Iterable[Sequence[str]]) -> None:
        known = np.zeros(0, dtype=np.int64)
        pending: list[Array] = []
        for some in ids:
            pending.append(np.unique(_hashes(some)))
            if sum(map(len, pending)) > max(PENDING, len(known)):
                known, pending = np.unique(np.concatenate([known, *pending])), []
        self._known = np.unique(np.concatenate([known, *pending]))
        self._rows = np.full(len(self._known), -1, dtype=np.int32)
        self._second = np.zeros(len(self._known), dtype=np.int64)  # another hash of what was placed
        self._count = 0

    def __len__(self) -> int:
        """How many ids the set has."""
        return len(self._known)

    def place(self, ids: Sequence[str]) -> Array:
        """Give the next rows to those of these ids that are in the set; which ones, ``[N]`` bool.

        Raises:
            UserError: an id comes a second time.
        """
        at, there = self._find(ids)
        for place, id in zip(at[there].tolist(), compress(ids, there), strict=True):
            second = hash((id,))
            if self._rows[place] >= 0 and self._second[place] == second:
                raise UserError(f"document {id!r} comes a second time; ids are unique")
            self._rows[place], self._second[place] = self._count, second
            self._count += 1
        return there

    def of(self, ids: Sequence[str], stored: pa.ChunkedArray) -> Array:
        """The rows of these ids, ``[N]`` int32; -1 for those that were not placed.

        ``stored`` are the ids in the rows that were given.

        Raises:
            UserError: two ids have the same hash.
        """
        at, there = self._find(ids)
        rows = np.full(len(ids), -1, dtype=np.int32)
        rows[there] = self._rows[at[there]]
        placed = np.flatnonzero(rows >= 0)
        for i, id in zip(placed.tolist(), stored.take(pa.array(rows[placed])).to_pylist(), strict=True):
            if ids[i] != id:
                raise UserError(
                    f"documents {ids[i]!r} and {id!r} have the same hash; run it again without PYTHONHASHSEED "
                    "in the environment: hashes are different each time"
                )
        return rows

    def _find(self, ids: Sequence[str]) -> tuple[Array, Array]:
        if not len(self._known):
            return np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=bool)
        hashes = _hashes(ids)
        at = np.minimum(np.searchsorted(self._known, hashes), len(self._known) - 1)
        return at, self._known[at] == hashes


def _hashes(ids: Sequence[str]) -> Array:
    """Python's hashes, which are salted: ids that share one in this process do not in the next."""
    return np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids))
