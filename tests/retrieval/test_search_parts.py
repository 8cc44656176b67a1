from __future__ import annotations

import os
from pathlib import Path

from rerank.collections import Query, open_collection
from rerank.retrieval import BM25, build_index
from rerank.retrieval.bm25 import PAIRS, search_stored
from tests.builders import write_collection

DEPTH = PAIRS // 5
"""So that five queries are held at a time."""


def test_what_is_stored_is_what_search_returns(tmp_path: Path, home: Path) -> None:
    collection = open_collection(write_collection(tmp_path / "c", queries=23))
    queries = [*collection.queries(), Query("nothing", "zebra"), Query("odd", "wing \ud800")]
    index = build_index(collection)
    expected = BM25().search(index, queries, DEPTH)
    before = sorted(os.listdir(tmp_path))
    stored = search_stored(BM25(), index, queries, tmp_path, DEPTH)
    assert dict(stored) == expected
    assert list(stored) == list(expected)
    assert stored["q20"] == expected["q20"], "in any order"
    assert stored.get("unknown") is None
    assert sorted(os.listdir(tmp_path)) == before, "its files have no names"
    assert dict(search_stored(BM25(), index, [], tmp_path, DEPTH)) == {}
