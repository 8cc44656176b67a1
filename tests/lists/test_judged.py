"""Judgments of documents and queries that a collection lacks: counted aloud, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerank.collections import Qrels, Query, open_collection
from rerank.errors import UserError
from rerank.lists import build_lists
from rerank.lists.judged import check_queries
from tests.builders import random_run, write_collection


def build(tmp_path: Path, qrels: Qrels, length: int = 3) -> None:
    name = f"beir:{tmp_path / 'c'}/test"
    if not (tmp_path / "c").exists():
        assert name == write_collection(tmp_path / "c", queries=4, documents=60)
    build_lists(open_collection(name), random_run(name, [length] * 4), tmp_path / "lists", qrels=qrels)


@pytest.mark.parametrize("length", [3, 40])
def test_judgments_of_unknown_documents_are_counted_whichever_way_documents_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, length: int
) -> None:
    """d0 to d59 are there, candidates or not."""
    known = {f"d{i}": 1 for i in range(50)}
    build(tmp_path, {"q0": known | {"gone": 1}, "q1": {"gone": 0, "lost": 2}, "q2": known}, length)
    assert "3 judgments are of documents that the collection lacks, e.g. 'gone'" in caplog.text
    caplog.clear()
    build(tmp_path / "known", {f"q{i}": {"d7": 1, "d59": 0} for i in range(4)})
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_judgments_of_another_collection_are_refused(tmp_path: Path) -> None:
    judged = dict.fromkeys(["d1", *(f"other{i}" for i in range(10))], 1)
    with pytest.raises(UserError, match="only 1 of the 11 documents that are judged, and not 'other0'"):
        build(tmp_path, {"q0": judged})
    assert not (tmp_path / "lists").exists()
    build(tmp_path, {"q0": dict.fromkeys([*judged][:10], 1)})


def test_queries() -> None:
    some = [Query("1", "a"), Query("2", "b")]
    check_queries(some, {str(i): {"d": 1} for i in range(1, 100)}, "a few queries of many that are judged")
    check_queries([Query(str(i), "a") for i in range(100)], {"3": {"d": 1}}, "a few judged queries of many")
    with pytest.raises(UserError, match="only 0 of 1 judged queries"):
        check_queries(some, {"q9": {"d": 1}}, "c")
    others = {f"x{i}": {"d": 1} for i in range(30)}
    with pytest.raises(UserError, match="only 1 of 31 judged queries are among its 30"):
        check_queries([Query(str(i), "a") for i in range(30)], {"1": {"d": 1}} | others, "c")


def test_queries_left_out_and_queries_without_text_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    check_queries([Query("1", "a"), Query("2", " ")], {"1": {"d": 1}, "9": {"d": 1}}, "c")
    assert "1 queries have no text, e.g. '2'" in caplog.text
    assert "1 of 2 judged queries were not searched, e.g. '9'" in caplog.text
