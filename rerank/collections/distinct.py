"""Documents that come many times, each given one row at its first: 20 bytes a document, whatever its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class _Level(NamedTuple):
    """Documents that are known: hashes of their ids, sorted, with those of id and text, and rows."""

    keys: Array
    checks: Array
    rows: Array


class Distinct:
    """Rows of documents in the order in which they first come.

    Ids are known by 64-bit hashes, and so is each id with its text: a second text is noticed, as would be (once in
    400,000 collections of ten million) another id of the same hash. Known hashes lie in sorted arrays, of which each is
    more than twice as long as the next, so that adding costs little.
    """

    def __init__(self) -> None:
        self.count = 0
        self._levels: list[_Level] = []

    def place(self, ids: Sequence[str], texts: Sequence[str]) -> tuple[Array, Array, int | None]:
        """Find documents, and take in those that are new.

        Returns:
            The row of each, ``[N]`` int32; the positions at which new ones come first, in the order of their rows; the
            first position whose text is another than that of the same id before, None where there is none.
        """
        hashes = np.fromiter(map(hash, ids), np.int64, len(ids))
        checks = np.fromiter(map(hash, zip(ids, texts, strict=True)), np.int64, len(ids))
        keys, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        rows, known = np.full(len(keys), -1, np.int32), checks[first]
        for level in self._levels:
            at = np.minimum(np.searchsorted(level.keys, keys), len(level.keys) - 1)
            there = level.keys[at] == keys
            rows[there], known[there] = level.rows[at[there]], level.checks[at[there]]
        new = np.flatnonzero(rows < 0)
        new = new[np.argsort(first[new])]
        rows[new] = np.arange(self.count, self.count + len(new))
        self.count += len(new)
        if len(new):
            self._add(_Level(keys[new], known[new], rows[new]))
        wrong = np.flatnonzero(checks != known[inverse])
        return rows[inverse], first[new], int(wrong[0]) if len(wrong) else None

    def _add(self, level: _Level) -> None:
        while self._levels and len(self._levels[-1].keys) <= 2 * len(level.keys):
            other = self._levels.pop()
            level = _Level(*(np.concatenate(pair) for pair in zip(other, level, strict=True)))
        order = np.argsort(level.keys)
        self._levels.append(_Level(*(values[order] for values in level)))
