"""Arrow files of the store: written as a stream, read memory-mapped, ragged columns as NumPy views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rerank.errors import UserError

Array = np.ndarray[Any, Any]


def write_arrow(path: Path, schema: pa.Schema, batches: Iterable[Mapping[str, Any]]) -> int:
    """Write batches (column name -> values) to an Arrow stream file that ``datasets.Dataset.from_file`` reads.

    Returns:
        The number of rows written. Memory is bounded by one batch.
    """
    count = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            record = pa.record_batch([pa.array(batch[field.name], field.type) for field in schema], schema=schema)
            writer.write_batch(record)
            count += record.num_rows
    return count


def read_arrow(path: Path) -> pa.Table:
    """Memory-map an Arrow stream file; nothing is read before it is used.

    Raises:
        UserError: the file is missing, or not whole.
    """
    try:
        return pa.ipc.open_stream(pa.memory_map(str(path), "r")).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{path}: not a whole Arrow file ({error}); build the lists again") from error


class Ragged:
    """Random access to a list column of a memory-mapped table, without a copy of it.

    Args:
        column: a chunked array of lists of numbers.
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        self._values = [chunk.values.to_numpy(zero_copy_only=True) for chunk in chunks]
        self._offsets = [chunk.offsets.to_numpy(zero_copy_only=True) for chunk in chunks]
        self._starts = np.cumsum([0] + [len(chunk) for chunk in chunks])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, row: int) -> Array:
        """The list of one row, a view of the mapped file."""
        chunk = int(np.searchsorted(self._starts, row, side="right")) - 1
        offsets, inside = self._offsets[chunk], row - int(self._starts[chunk])
        return self._values[chunk][offsets[inside] : offsets[inside + 1]]

    def lengths(self) -> Array:
        """The length of every list, ``[rows]`` int64."""
        if not self._offsets:
            return np.zeros(0, dtype=np.int64)
        return np.concatenate([np.diff(offsets) for offsets in self._offsets]).astype(np.int64)

    def flat(self, dtype: type[np.generic]) -> Array:
        """All values, one list after the other, copied into an array of this type."""
        parts = [values[offsets[0] : offsets[-1]] for values, offsets in zip(self._values, self._offsets, strict=True)]
        return np.concatenate([np.zeros(0, dtype), *parts], dtype=dtype, casting="same_kind")


def blocks(offsets: Array, rows: int) -> list[tuple[int, int]]:
    """Ranges ``(first, last)`` of consecutive lists with about so many rows each, one list at least.

    Args:
        offsets: ``[Q + 1]`` where each list starts, and the last one ends.
        rows: rows in a range, exceeded only by a single list.
    """
    ranges, first, lists = [], 0, len(offsets) - 1
    while first < lists:
        last = int(np.searchsorted(offsets, offsets[first] + rows, side="right")) - 1
        ranges.append((first, last := min(max(last, first + 1), lists)))
        first = last
    return ranges
