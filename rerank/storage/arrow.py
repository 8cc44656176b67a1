"""Arrow files of lists: written as streams, read memory-mapped, and NumPy views of their columns."""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from rerank.errors import UserError

Array = np.ndarray[Any, Any]

FLOAT32 = float.fromhex("0x1.fffffefffffffp+127")
"""The largest number that rounds to a finite float32."""

T = TypeVar("T")


def write_arrow(path: Path, schema: pa.Schema, batches: Iterable[Mapping[str, Any]]) -> int:
    """Write batches (column name -> values) as an Arrow stream, one at a time, and return the number of rows.

    ``datasets.Dataset.from_file`` reads the file. A batch with more than 2 GiB of texts is split by Arrow.
    """
    rows = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            table = pa.table({field.name: batch[field.name] for field in schema}, schema=schema)
            writer.write_table(table)
            rows += table.num_rows
    return rows


def read_arrow(path: Path) -> pa.Table:
    """Memory-map an Arrow stream file; nothing is read before it is used."""
    try:
        return pa.ipc.open_stream(pa.memory_map(str(path), "r")).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{path}: not a whole Arrow file ({error}); build the lists again") from error


def taken(column: pa.ChunkedArray, rows: Array) -> pa.ChunkedArray:
    """Return some rows of a column of texts, in as many chunks as Arrow's 32-bit offsets need."""
    try:
        return column.take(pa.array(rows))
    except pa.ArrowInvalid:  # 2 GiB or more
        if len(rows) < 2:
            raise
        half = len(rows) // 2
        return pa.chunked_array([*taken(column, rows[:half]).chunks, *taken(column, rows[half:]).chunks], column.type)


class FlatFile(ExitStack):
    """Collects numbers block by block and writes them to an Arrow file in one piece, which maps without a copy.

    Blocks wait in nameless files on the same disk, so a killed process leaves nothing behind.
    """

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        super().__init__()
        self.schema, self.rows = schema, 0
        self._files = {field.name: self.enter_context(tempfile.TemporaryFile(dir=folder)) for field in schema}  # noqa: SIM115

    def add(self, **columns: Array) -> None:
        """Append rows: ``[n]``, or ``[n, C]`` of fixed-size lists, for every column."""
        for name, values in columns.items():
            self._files[name].write(np.ascontiguousarray(values, dtype=_number(self.schema.field(name).type)).data)
        self.rows += len(values)

    def write(self, path: Path, metadata: Mapping[str, str] | None = None) -> None:
        """Write the file as one record batch, with metadata in its schema."""
        columns = {}
        for field in self.schema:
            file, number = self._files[field.name], _number(field.type)
            file.flush()
            values = np.memmap(file, number, "r") if self.rows else np.zeros(0, number)
            is_list = pa.types.is_fixed_size_list(field.type)
            columns[field.name] = pa.FixedSizeListArray.from_arrays(values, type=field.type) if is_list else values
        write_arrow(path, self.schema.with_metadata(dict(metadata or {})), [columns])


def _number(kind: pa.DataType) -> Any:
    return (kind.value_type if pa.types.is_fixed_size_list(kind) else kind).to_pandas_dtype()


class Ragged:
    """Random access to a list column of a memory-mapped table, without a copy of it."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self.column = column
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        self._values = [chunk.values.to_numpy(zero_copy_only=True) for chunk in chunks]
        self._offsets = [chunk.offsets.to_numpy(zero_copy_only=True) for chunk in chunks]
        self._starts = [0, *accumulate(map(len, chunks))]

    @classmethod
    def joined(cls, parts: Sequence[Ragged]) -> Self:
        """Concatenate columns."""
        return cls(pa.chunked_array([chunk for part in parts for chunk in part.column.chunks], parts[0].column.type))

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, row: int) -> Array:
        chunk = bisect_right(self._starts, row) - 1
        offsets, inside = self._offsets[chunk], row - self._starts[chunk]
        return self._values[chunk][offsets[inside] : offsets[inside + 1]]

    def take(self, rows: Array) -> Array:
        """Return the lists of some rows, one after the other, in one array."""
        return np.concatenate([np.zeros(0, np.int32), *(self[row] for row in rows.tolist())])

    def lengths(self) -> Array:
        return np.concatenate([np.zeros(0, np.int64), *map(np.diff, self._offsets)])


def ranges(starts: Array, lengths: Array) -> Array:
    """Concatenate ranges of numbers.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = lengths.cumsum()
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


def list_numbers(count: int, starts: Array) -> Array:
    """Return the number of the list of every row, ``[count]``; lists without rows are numbered, too."""
    return np.searchsorted(starts, np.arange(count), side="right") - 1


def starts_of(numbers: Array) -> Array:
    """Return the positions at which the number of the list changes."""
    return np.flatnonzero(np.diff(numbers, prepend=-1))


def blocks(offsets: Array, rows: int) -> list[tuple[int, int]]:
    """Cut lists into ranges ``(first, last)`` of at most this many rows each; only a single list may have more.

    ``offsets`` are the starts of the lists, and the end of the last one, ``[Q + 1]``.
    """
    ranges, first, lists = [], 0, len(offsets) - 1
    while first < lists:
        last = int(np.searchsorted(offsets, offsets[first] + rows, side="right")) - 1
        ranges.append((first, last := min(max(last, first + 1), lists)))
        first = last
    return ranges


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of ``size`` items; the last one may have fewer."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
