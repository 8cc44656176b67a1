"""Indexes as Anserini's users make them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from rerank.collections.jvm import java_class


def foreign_index(folder: Path, documents: Iterable[tuple[str, str]], option: str = "-storeContents") -> Path:
    """An index as Anserini's users make them, without our manifest."""
    arguments = ["-index", str(folder), "-input", "", "-collection", "JsonCollection", option]
    indexer = java_class("io.anserini.index.SimpleIndexer")(arguments)
    lines = [json.dumps({"id": id, "contents": text}) for id, text in documents]
    assert indexer.addRawDocuments(lines) == len(lines)
    indexer.close()
    return folder
