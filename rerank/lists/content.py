"""Content hashes of lists, by which a run knows whether it was trained on the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rerank.lists.scaled import SCALED
from rerank.lists.view import Lists
from rerank.storage.arrow import Array, by_first_appearance, taken

BLOCK = 65_536
"""Documents that are hashed at a time."""


def content_hashes(lists: Lists, columns: Sequence[str] = ()) -> dict[str, str]:
    """Hash the content of some lists, wherever they are stored.

    Documents are numbered by their first appearance, so that other lists of the same folder do not count.

    Returns:
        Hashes of ``texts`` (ids and texts of queries and documents), ``candidates`` (documents in their order),
        ``labels`` (all judgments) and of each column.
    """
    store = lists.store
    rows, numbers = by_first_appearance(lists.documents)
    texts = hashlib.sha256()
    for table, chosen in ((store.queries, lists.queries), (store.documents, rows)):
        for column in table.columns:
            _hash_strings(texts, column, chosen)
    labels = hashlib.sha256(np.asarray(lists.grades, "<i8").tobytes())
    if not lists.judged_by_grades:
        for query in lists.query_ids:  # judgments of documents that were not retrieved count in measures
            labels.update(repr(sorted((lists.qrels or {}).get(query, {}).items())).encode())
    found = {
        "texts": texts.hexdigest(),
        "candidates": _hash(np.asarray(lists.offsets, "<i8"), numbers),
        "labels": labels.hexdigest(),
    }
    return found | {f"column {name}": _hash(_column(lists, name)) for name in dict.fromkeys(columns)}


def _hash_strings(total: Any, column: pa.ChunkedArray, rows: Array) -> None:
    for start in range(0, len(rows), BLOCK):
        for text in taken(column, rows[start : start + BLOCK]).to_pylist():
            data = (text or "").encode()
            total.update(len(data).to_bytes(8, "little") + data)


def _column(lists: Lists, name: str) -> Array:
    column, is_scaled, depth = name.partition(SCALED)
    if is_scaled:
        return lists.store.scaled(column, int(depth), lists.row_numbers)
    return lists.matrix([name])


def _hash(*parts: Array) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(np.ascontiguousarray(part).data)
    return total.hexdigest()
