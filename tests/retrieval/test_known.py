"""BM25's scores of documents by their ids."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rerank.collections import Collection, Query, open_collection
from rerank.commands.cli import main
from rerank.lists import Lists
from rerank.retrieval import BM25, Scored, build_index
from tests.builders import write_collection
from tests.retrieval.compared import foreign_index


@pytest.mark.parametrize("model", [BM25(), BM25(k1=2.0, b=0.9), BM25(k1=0.0, b=0.0)], ids=str)
def test_scorer_agrees_with_a_search(tmp_path: Path, home: Path, model: BM25) -> None:
    collection = open_collection(write_collection(tmp_path / "c"))
    index = build_index(collection)
    queries = [*collection.queries(), Query("twice", "wing wing heat"), Query("odd", 'wing" \ud800 OR (')]
    with model.scorer(index) as score:
        for (id, ranked), query in zip(model.search(index, queries).items(), queries, strict=True):
            assert id == query.id and ranked
            # a search lowers tied documents by a millionth each
            expected = [document.score for document in ranked]
            assert score(query, [document.id for document in ranked]) == pytest.approx(expected, abs=1.5e-4)


def test_scorer_gives_0_without_a_common_term(fruit: Collection) -> None:
    index = build_index(fruit)
    query = Query("q", "plums")
    found = BM25().search(index, [query])["q"]
    assert [document.id for document in found] == ["d2"]
    with BM25().scorer(index) as score:
        assert score(query, ["d1", "d2", "blank", "gone"]) == pytest.approx([0.0, found[0].score, 0.0, 0.0])
        assert score(Query("empty", ""), ["d1"]) == [0.0]


def bm25_of(lists: Lists) -> dict[str, list[Scored]]:
    lists = lists.with_added()
    ids = lists.store.documents.column("doc_id").take(lists.documents).to_pylist()
    ranked = list(map(Scored, ids, lists.column("bm25").tolist()))
    return {query: ranked[a:b] for query, (a, b) in zip(lists.query_ids, pairwise(lists.offsets.tolist()), strict=True)}


@pytest.mark.parametrize("way", ["built", "--index", "lucene:"])
def test_retrieve_scores_added_documents_like_a_deeper_search(tmp_path: Path, home: Path, way: str) -> None:
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
            assert document.score == pytest.approx(known.get(document.id, 0.0), abs=1.5e-4)
            assert document.score > 0, "relevant documents share words with their query"
        added += len(ranked[3:])
    assert added > 50
