"""What lists hold, as hashes: a training and a measurement are those of before where these are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rerank.lists.view import Lists
from rerank.storage.arrow import Array, by_first_appearance

BLOCK = 65_536
"""Documents or candidates that are hashed at a time."""

SCALED = ":z"
"""Between a column and a number of candidates; no column's own name has a colon."""


def split_hashes(lists: Lists, columns: Sequence[str]) -> dict[str, str]:
    """Hashes of what the queries of some lists have, and of nothing else in their folder.

    Documents are numbered by their first appearance in these lists, so that a changed or regraded query elsewhere in
    the folder changes nothing here.

    Returns:
        ``texts`` (ids and texts of queries and documents), ``candidates`` (which documents, in which order),
        ``grades`` (of the candidates), ``qrels`` (all judgments) and a hash for each column.
    """
    store = lists.store
    rows, numbers = by_first_appearance(lists.documents)
    texts = hashlib.sha256()
    for table, chosen in ((store.queries, lists.queries), (store.documents, rows)):
        for column in table.columns:  # ids and, where there are some, texts
            _hash_strings(texts, column, chosen)
    found = {
        "texts": texts.hexdigest(),
        "candidates": _hash(np.asarray(lists.offsets, "<i8"), numbers),
        "grades": _hash(np.asarray(lists.grades, "<i8")),
        "qrels": _hash_qrels(lists),
    }
    return found | {name: _hash(*_column(lists, name)) for name in columns}


def _hash_strings(total: Any, column: pa.ChunkedArray, rows: Array) -> None:
    for start in range(0, len(rows), BLOCK):
        taken = column.take(pa.array(rows[start : start + BLOCK])).cast(pa.large_string())
        total.update(pc.binary_length(taken).fill_null(-1).to_numpy().astype("<i8").tobytes())
        for chunk in taken.chunks:
            _, offsets, data = chunk.buffers()
            if data is not None:
                ends = np.frombuffer(offsets, dtype="<i8")[chunk.offset : chunk.offset + len(chunk) + 1]
                total.update(memoryview(data)[ends[0] : ends[-1]])


def _hash_qrels(lists: Lists) -> str:
    if lists.judged_by_grades:
        return _hash(np.asarray(lists.grades, "<i8"))
    total = hashlib.sha256()
    for query in lists.query_ids:
        grades = None if lists.qrels is None else lists.qrels.get(query)
        total.update(repr(sorted(grades.items()) if grades else None).encode())  # a file has no line for none
    return total.hexdigest()


def scaled(column: str, depth: int) -> str:
    """The name of a column's z over so many candidates, ``bm25:z100``: what a model reads that reads no more of it."""
    return f"{column}{SCALED}{depth}"


def _column(lists: Lists, name: str) -> Iterator[Array]:
    column, of_z, depth = name.partition(SCALED)
    numbers = lists.row_numbers
    if of_z:  # of whole lists: what lies deeper than these lists show has its share in it
        yield lists.store.scaled(column, int(depth), numbers)
        return
    values = lists.store.matrix([name])
    for start in range(0, lists.size, BLOCK):
        yield values[numbers[start : start + BLOCK]]


def _hash(*parts: Array) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(np.ascontiguousarray(part).tobytes())
    return total.hexdigest()
