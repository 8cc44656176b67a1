"""Lists whose documents were looked up by their ids, and the same from the whole collection."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rerank.collections import Collection, Document, Qrels, Query, open_collection
from rerank.errors import UserError
from rerank.lists import build_lists
from rerank.retrieval import Scored
from tests.builders import random_run, write_collection


class Streamed:
    """A collection in which nothing can be looked up."""

    def __init__(self, collection: Collection) -> None:
        self.name = collection.name
        self._collection = collection

    def documents(self) -> list[Document]:
        return list(self._collection.documents())

    def queries(self) -> list[Query]:
        return list(self._collection.queries())

    def qrels(self) -> Qrels | None:
        return self._collection.qrels()

    def document_count(self) -> int | None:
        return self._collection.document_count()

    def fingerprint(self) -> str:
        return self._collection.fingerprint()


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
    build_lists(Streamed(collection), run, tmp_path / "other", qrels=qrels, add_relevant=True)  # type: ignore[arg-type]
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


def test_a_document_that_is_not_there_is_named(tmp_path: Path) -> None:
    name = write_collection(tmp_path / "c")
    with pytest.raises(UserError, match="query q1: the run's document 'd99' is not in"):
        build_lists(open_collection(name), {"q1": [Scored("d1", 2.0), Scored("d99", 1.0)]}, tmp_path / "lists")
