"""BM25's scores of documents by their ids, beside those that a search returns."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest

from rerank.collections import Collection, Query, open_collection
from rerank.commands.cli import main
from rerank.lists import Lists
from rerank.retrieval import BM25, Scored, build_index
from rerank.retrieval.known import score_known
from tests.builders import write_collection
from tests.retrieval.compared import compare, foreign_index

SETTINGS = [BM25(), BM25(k1=2.0, b=0.9), BM25(k1=0.0, b=0.0)]


@pytest.mark.parametrize("model", SETTINGS, ids=str)
def test_scores_are_those_of_a_search(tmp_path: Path, home: Path, model: BM25) -> None:
    collection = open_collection(write_collection(tmp_path / "c"))
    queries = [*collection.queries(), Query("twice", "wing wing heat"), Query("odd", 'wing" \ud800 OR (')]
    count, _ = compare(build_index(collection), queries, model, 50)
    assert count > 200


def test_documents_that_share_no_term(fruit: Collection) -> None:
    index = build_index(fruit)
    query = Query("q", "plums")
    ids = ["d1", "d2", "blank", "gone"]
    found = BM25().search(index, [query])["q"]
    assert [document.id for document in found] == ["d2"]
    with score_known(BM25(), index, complete=True) as score:
        assert score(query, ids) == [0.0, found[0].score, 0.0, 0.0]
        assert score(Query("empty", ""), ids) == [0.0] * 4
        assert score(query, []) == []
    with score_known(BM25(), index, complete=False) as score:
        assert score(query, ids) == pytest.approx([0.0, found[0].score, math.nan, math.nan], nan_ok=True)


def bm25_of(lists: Lists) -> dict[str, list[Scored]]:
    lists = lists.with_added()
    ids = lists.store.documents.column("doc_id").take(lists.documents).to_pylist()
    ranked = list(map(Scored, ids, lists.column("bm25").tolist()))
    return {query: ranked[a:b] for query, (a, b) in zip(lists.query_ids, pairwise(lists.offsets.tolist()), strict=True)}


@pytest.mark.parametrize("way", ["built", "--index", "lucene:"])
def test_added_documents_have_the_scores_of_a_deeper_search(tmp_path: Path, home: Path, way: str) -> None:
    """With an index of this collection's own, one that was named, and one that is the collection."""
    name = write_collection(tmp_path / "c")
    collection = open_collection(name)
    options = ["--k1", "1.5", "--depth", "3", "--add-relevant"]
    if way == "built":
        where, words = build_index(collection), ["--collection", name]
    else:
        where = foreign_index(tmp_path / "index", collection.documents())
        words = ["--collection", name, "--index", str(where)]
    if way == "lucene:":
        words = ["--collection", f"lucene:{where}", "--queries", name, "--qrels", name]
    assert main(["retrieve", *words, "--output", str(tmp_path / "lists"), *options]) == 0
    found = bm25_of(Lists.open(tmp_path / "lists"))
    deep = BM25(k1=1.5).search(where, collection.queries(), 1000)
    added = 0
    for query, ranked in found.items():
        known = dict(deep[query])
        assert ranked[:3] == deep[query][:3]
        for document in ranked[3:]:
            assert document.score == pytest.approx(known.get(document.id, 0.0), abs=5e-5)
            assert document.score > 0, "relevant documents share words with their query"
        added += len(ranked[3:])
    assert added > 50
