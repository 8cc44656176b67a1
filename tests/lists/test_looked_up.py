"""Lists whose documents were looked up by their ids, and the same from the whole collection."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rerank.collections import open_collection
from rerank.lists import build_lists
from tests.builders import random_run, write_collection

PLAIN = ("name", "documents", "queries", "qrels", "document_count", "fingerprint")
"""What a collection has in which nothing can be looked up."""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("length", "way"), [(3, "looking up"), (40, "reading all")])
def test_both_ways_give_the_same_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture, length: int, way: str) -> None:
    """Also where a judged document is not in the collection."""
    name = write_collection(tmp_path / "c", queries=5, documents=200)
    collection = open_collection(name)
    run = random_run(name, [length] * 5)
    qrels = {query: {"gone": 1, **dict.fromkeys([f"d{i}" for i in range(length)], 2)} for query in run}
    with caplog.at_level(logging.INFO, "rerank"):
        build_lists(collection, run, tmp_path / "one", qrels=qrels, add_relevant=True)
    assert way in caplog.text
    streamed: Any = SimpleNamespace(**{name: getattr(collection, name) for name in PLAIN})
    build_lists(streamed, run, tmp_path / "other", qrels=qrels, add_relevant=True)
    assert contents(tmp_path / "one") == contents(tmp_path / "other")
