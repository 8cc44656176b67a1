from __future__ import annotations

import json
from pathlib import Path

import pytest

from rerank.collections import Document, Query, open_collection
from rerank.errors import UserError
from rerank.retrieval import Scored, read_run


def hit(qid: int, docid: str, rank: int, score: float) -> dict:
    return {"content": f"text of {docid}", "qid": qid, "docid": docid, "rank": rank, "score": score}


LISTS = [
    {"query": "one", "hits": [hit(1, "a", 1, 2.5), hit(1, "b", 2, 2.5)]},
    {"query": "two", "hits": [hit(2, "b", 1, 1.0), hit(2, "c", 2, 3.0)]},
]


def test_documents_queries_and_run(tmp_path: Path) -> None:
    path = tmp_path / "lists.json"
    path.write_text(json.dumps(LISTS))
    collection = open_collection(f"rank_llm:{path}")
    assert list(collection.documents()) == [Document(id, f"text of {id}") for id in "abc"]
    assert list(collection.queries()) == [Query("1", "one"), Query("2", "two")]
    assert collection.qrels() is None
    assert read_run(path) == {"1": [Scored("a", 2.5), Scored("b", 2.5)], "2": [Scored("c", 3.0), Scored("b", 1.0)]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{", "lists.json: not JSON"),
        ("[3]", "lists.json: list 1: TypeError"),
        (json.dumps([*LISTS, {"query": "three", "hits": []}]), "lists.json: list 3: IndexError"),
        (json.dumps([{"query": "one", "hits": [{"qid": 1, "docid": "a"}]}]), "lists.json: list 1: KeyError 'content'"),
        (json.dumps(LISTS * 2), "lists.json: list 3: query id '1' again"),
        (json.dumps([{"query": "x", "hits": [hit(1, "a", 1, 1.0)] * 2}]), "list 1: document 'a' is in the list"),
        (json.dumps([{"query": "x", "hits": [hit(1, "a", 1, "high")]}]), "list 1: score 'high'; expected a finite"),  # type: ignore[arg-type]
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "lists.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_run(path)


def test_there_are_no_fields_to_choose(tmp_path: Path) -> None:
    for name in (f"rank_llm:{tmp_path}", "demo"):
        with pytest.raises(UserError, match="no fields to choose"):
            open_collection(name, ["text"])
    with pytest.raises(UserError, match="no such file"):
        open_collection(f"rank_llm:{tmp_path}/nowhere.json")
