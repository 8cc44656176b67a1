from __future__ import annotations

import os
import signal
import time
import tracemalloc
from pathlib import Path

import pytest

from rerank.collections import Query, open_collection
from rerank.commands.cli import main
from rerank.lists import build_lists
from rerank.retrieval import BM25, build_index
from rerank.retrieval.bm25 import PAIRS, search_stored
from tests.builders import contents, write_collection
from tests.forked import Command

DEPTH = PAIRS // 5
"""So that five queries are held at a time."""
QRELS = {"q0": {"d0": 1}}


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


@pytest.mark.slow
def test_a_killed_search_leaves_nothing_and_starts_over(tmp_path: Path, home: Path) -> None:
    """SIGKILL while queries are searched: the same command then makes the lists that one go makes."""
    collection = write_collection(tmp_path / "c", queries=1000)
    command = ["retrieve", "--collection", collection, "--depth", str(DEPTH), "--threads", "1", "--output"]
    assert main([*command, str(tmp_path / "alone")]) == 0
    words = [*command, str(tmp_path / "killed")]
    process = Command(words)
    waited = time.monotonic()
    while process.poll() is None and not (tmp_path / ".killed.lock").exists() and time.monotonic() - waited < 120:
        time.sleep(0.001)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    assert not (tmp_path / "killed").exists()
    assert main(words) == 0
    assert contents(tmp_path / "killed") == contents(tmp_path / "alone")
    assert sorted(os.listdir(tmp_path)) == ["alone", "c", "home", "killed"], "nothing is left beside the lists"


def test_memory_does_not_hold_the_candidates(tmp_path: Path, home: Path) -> None:
    collection = open_collection(write_collection(tmp_path / "c", queries=700, documents=100))
    queries, index = list(collection.queries()), build_index(collection)
    peaks, pairs = [], []
    for count in (100, 700):
        some = queries[:count]
        tracemalloc.start()
        run = search_stored(BM25(), index, some, tmp_path, PAIRS // 50)
        lists = build_lists(collection, run, tmp_path / f"lists{count}", queries=some, depth=PAIRS // 50, qrels=QRELS)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        pairs.append(lists.size)
    assert pairs[0] > 1000
    assert (peaks[1] - peaks[0]) / (pairs[1] - pairs[0]) < 40, "bytes a candidate; in memory they take 150"
