"""What a lists folder is made of: queries, documents and candidates in Arrow, any number of columns, a manifest.

=====================  ================================================================================================
``manifest.json``      version, where everything came from, counts
``queries.arrow``      ``query_id`` and, of texts, ``text`` and perhaps ``instruction``
``documents.arrow``    ``doc_id`` and, of texts, ``text``: each distinct document once
``candidates.arrow``   ``query``, ``document`` (rows of the two), ``grade``, ``added``: a row per candidate, list after
                       list, best first
``ends.arrow``         ``end`` (where each list ends among the candidates), ``added`` (how many of its last are hidden)
``qrels.trec``         all judgments, also of documents that are no candidates
``columns/NAME.arrow`` what a system says of every candidate, a number or several; NaN where it did not return it
``run.trec``           the ranking, for other tools
=====================  ================================================================================================

A folder is immutable but for its columns, which come and go as whole files. It is mapped, not read: what a list does
not need is never touched.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rerank.errors import NotFoundError, UserError
from rerank.storage.files import read_json

VERSION = 2
"""Version of the folder's layout; a folder of another version is refused."""

MANIFEST = "manifest.json"
QUERIES = pa.schema([("query_id", pa.string()), ("text", pa.string())])
DOCUMENTS = pa.schema([("doc_id", pa.string()), ("text", pa.string())])
CANDIDATES = pa.schema([("query", pa.int32()), ("document", pa.int32()), ("grade", pa.int16()), ("added", pa.uint8())])
ENDS = pa.schema([("end", pa.int64()), ("added", pa.int32())])
IDS = {"queries": "query_id", "documents": "doc_id"}
TABLES = ("queries", "documents", "candidates", "ends")

Judgments = Literal["qrels.trec", "grades"]
"""Place of the judgments: a file, or the candidates' grades; None if nothing is judged."""


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a lists folder, checked for its version."""
    path = folder / MANIFEST
    if not path.is_file():
        raise NotFoundError(f"{folder}: not a lists folder (no {MANIFEST}); make one with `rerank retrieve`")
    manifest = read_json(path)
    if (version := manifest.get("version")) != VERSION:
        raise UserError(f"{path}: lists of version {version}, this is version {VERSION}; build them again")
    if lost := [name for name in TABLES if not (folder / f"{name}.arrow").is_file()]:
        raise NotFoundError(f"{folder / lost[0]}.arrow: no such file; build the lists again")
    return manifest


def candidates_hash(queries: pa.Table, documents: pa.Table, candidates: pa.Table) -> str:
    """Hash of whose candidates are which, to which columns belong: ids, rows, what was added; no grades or files."""
    total = hashlib.sha256()
    for ids in (queries.column("query_id"), documents.column("doc_id")):
        lengths, letters = hashlib.sha256(), hashlib.sha256()
        for chunk in ids.chunks:
            lengths.update(pc.binary_length(chunk).cast(pa.int64()).to_numpy(zero_copy_only=False).tobytes())
            _, offsets, data = chunk.buffers()
            if data is not None and len(chunk):
                ends = np.frombuffer(offsets, np.int32, len(chunk) + 1, offset=4 * chunk.offset)
                letters.update(memoryview(data)[int(ends[0]) : int(ends[-1])])
        total.update(lengths.digest() + letters.digest())
    for name in ("query", "document", "added"):
        for chunk in candidates.column(name).chunks:
            total.update(np.ascontiguousarray(chunk.to_numpy()).data)
    return total.hexdigest()


def is_lists_folder(folder: Path) -> bool:
    """Whether a folder holds ranked lists of ours, whole or damaged: what ``--overwrite`` may replace."""
    try:
        return "counts" in json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, TypeError, RecursionError):
        return False
