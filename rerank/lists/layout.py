"""Layout of a lists folder: queries, documents and candidates in Arrow, any number of columns, a manifest.

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

import json
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

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
    """Read the manifest of a lists folder and check its version."""
    path = folder / MANIFEST
    if not path.is_file():
        raise NotFoundError(f"{folder}: not a lists folder (no {MANIFEST}); make one with `rerank retrieve`")
    manifest = read_json(path)
    if (version := manifest.get("version")) != VERSION:
        raise UserError(f"{path}: lists of version {version}, this is version {VERSION}; build them again")
    if lost := [name for name in TABLES if not (folder / f"{name}.arrow").is_file()]:
        raise NotFoundError(f"{folder / lost[0]}.arrow: no such file; build the lists again")
    return manifest


def is_lists_folder(folder: Path) -> bool:
    """Return True for a folder of ranked lists, whole or damaged, which ``--overwrite`` may replace."""
    try:
        return "counts" in json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, TypeError, RecursionError):
        return False
