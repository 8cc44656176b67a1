"""Hashes of what lists hold, which depend on nothing but their content: not on chunks, files or rows."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def strings_hash(column: pa.ChunkedArray) -> bytes:
    """Hash of strings, one after the other; missing ones count as empty."""
    lengths, letters = hashlib.sha256(), hashlib.sha256()
    for chunk in column.chunks:
        filled = pc.fill_null(chunk, "")
        lengths.update(pc.binary_length(filled).cast(pa.int64()).to_numpy(zero_copy_only=False).tobytes())
        _, offsets, data = filled.buffers()
        if data is not None and len(filled):
            ends = np.frombuffer(offsets, np.int32, len(filled) + 1, offset=4 * filled.offset)
            letters.update(memoryview(data)[int(ends[0]) : int(ends[-1])])
    return lengths.digest() + letters.digest()


def candidates_hash(queries: pa.Table, documents: pa.Table, candidates: pa.Table) -> str:
    """Hash of whose candidates are which: ids, rows and what was added, not grades. Columns belong to it."""
    total = hashlib.sha256()
    for ids in (queries.column("query_id"), documents.column("doc_id")):
        total.update(strings_hash(ids))
    for name in ("query", "document", "added"):
        for chunk in candidates.column(name).chunks:
            total.update(np.ascontiguousarray(chunk.to_numpy()).data)
    return total.hexdigest()


def texts_hash(*tables: pa.Table) -> str:
    """Hash of all the strings of some tables."""
    total = hashlib.sha256()
    for table in tables:
        for column in table.columns:
            total.update(strings_hash(column))
    return total.hexdigest()
