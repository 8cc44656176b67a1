from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from rerank.collections import Query, open_collection
from rerank.commands.cli import main
from rerank.lists import build_lists
from rerank.retrieval import BM25, Scored, build_index
from rerank.retrieval.search import PAIRS, StoredRun, search_stored
from tests.builders import write_collection
from tests.forked import Command

DEPTH = PAIRS // 5
"""So that a part has five queries."""
QRELS = {"q0": {"d0": 1}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RERANK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Which file each name stands for, to tell whether it was written again."""
    found = {path: path.stat() for path in folder.rglob("*.arrow")}
    return {path.name: (status.st_ino, status.st_mtime_ns) for path, status in found.items()}


def test_what_is_stored_is_what_search_returns(tmp_path: Path, home: Path) -> None:
    collection = open_collection(write_collection(tmp_path / "c", queries=23))
    queries = [*collection.queries(), Query("nothing", "zebra"), Query("odd", "wing \ud800")]
    index = build_index(collection)
    expected = BM25().search(index, queries, DEPTH)
    stored = search_stored(BM25(), index, queries, tmp_path / "search", DEPTH)
    assert dict(stored) == expected
    assert list(stored) == list(expected)
    assert stored["q20"] == expected["q20"], "in any order"
    assert len(stamps(tmp_path / "search")) == 5
    assert stored.get("unknown") is None


@pytest.mark.parametrize(
    "damage", [lambda whole: b"", lambda whole: whole[: len(whole) // 2], lambda whole: whole[:-9]]
)
def test_only_parts_that_are_missing_or_torn_are_searched_again(
    tmp_path: Path, home: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    collection = open_collection(write_collection(tmp_path / "c", queries=23))
    index, queries = build_index(collection), list(collection.queries())
    stored = search_stored(BM25(), index, queries, tmp_path / "search", DEPTH)
    before, expected = stamps(tmp_path / "search"), dict(stored)
    stored.path(1).unlink()
    torn = stored.path(4)
    torn.write_bytes(damage(torn.read_bytes()))
    with caplog.at_level("INFO", "rerank"):
        again = search_stored(BM25(), index, queries, tmp_path / "search", DEPTH)
    assert "15 of 23 queries are done" in caplog.text
    assert dict(again) == expected
    after = stamps(tmp_path / "search")
    assert {name for name in before if after[name] != before[name]} == {"000001.arrow", "000004.arrow"}


def test_another_search_takes_nothing_over(tmp_path: Path, home: Path) -> None:
    collection = open_collection(write_collection(tmp_path / "c"))
    index, queries = build_index(collection), list(collection.queries())
    other = build_index(collection, tmp_path / "other")
    changed = [Query(queries[0].id, "wing"), *queries[1:]]
    searches = [
        (BM25(), index, queries, 10),
        (BM25(k1=1.0), index, queries, 10),
        (BM25(), other, queries, 10),
        (BM25(), index, changed, 10),
        (BM25(), index, queries[1:], 10),
        (BM25(), index, queries, 3),
    ]
    for model, where, asked, depth in searches:
        stored = search_stored(model, where, asked, tmp_path / "search", depth)
        assert dict(stored) == model.search(where, asked, depth)
    assert len(os.listdir(tmp_path / "search")) == len(searches)


def test_a_search_killed_at_any_moment_goes_on(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Two SIGKILLs while queries are searched: no part is searched twice, and the lists are those of one go."""
    collection = write_collection(tmp_path / "c", queries=1000)
    command = ["retrieve", "--collection", collection, "--depth", str(DEPTH), "--threads", "1", "--output"]
    assert main([*command, str(tmp_path / "alone")]) == 0

    search = tmp_path / ".killed.search"
    words = [*command, str(tmp_path / "killed")]
    for _ in range(2):
        before = stamps(search)
        process = Command(words)
        waited = time.monotonic()
        while process.poll() is None and len(stamps(search)) < len(before) + 5 and time.monotonic() - waited < 120:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors
        after = stamps(search)
        assert len(after) >= len(before) + 5
        assert {name: after[name] for name in before} == before, "what was stored has not been searched again"
        assert not (tmp_path / "killed").exists()
    capsys.readouterr()
    assert main(words) == 0
    assert f"{5 * len(after)} of 1000 queries are done" in capsys.readouterr().err + caplog.text
    assert contents(tmp_path / "killed") == contents(tmp_path / "alone")
    assert sorted(os.listdir(tmp_path)) == ["alone", "c", "home", "killed"], "nothing is left beside the lists"


def test_memory_does_not_hold_the_candidates(tmp_path: Path) -> None:
    collection = open_collection(write_collection(tmp_path / "c", queries=700, documents=100))
    queries, ids = list(collection.queries()), [document.id for document in collection.documents()]
    peaks = []
    for count in (100, 700):
        some = queries[:count]
        run = StoredRun(tmp_path / str(count), some, 50)
        for part in run.missing():
            run.write(part, [[Scored(id, -float(i)) for i, id in enumerate(ids)] for _ in run.queries_of(part)])
        tracemalloc.start()
        lists = build_lists(collection, run, tmp_path / f"lists{count}", queries=some, depth=PAIRS // 50, qrels=QRELS)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert lists.lengths.tolist() == [100] * count
    grown = (peaks[1] - peaks[0]) / (600 * 100)
    assert grown < 40, "bytes a candidate; in memory they take 150"


SEARCH = """
import sys
from pathlib import Path
from rerank.collections import open_collection
from rerank.retrieval import BM25
from rerank.retrieval.search import search_stored
queries = list(open_collection(sys.argv[1]).queries())
print("ready", flush=True)
sys.stdin.readline()
run = search_stored(BM25(), Path(sys.argv[2]), queries, Path(sys.argv[3]), int(sys.argv[4]), 1)
print(sum(len(run[query.id]) for query in queries))
"""


def test_processes_that_start_together_search_once(tmp_path: Path, home: Path) -> None:
    collection = write_collection(tmp_path / "c", queries=200)
    index = build_index(open_collection(collection))
    words = [sys.executable, "-c", SEARCH, collection, str(index), str(tmp_path / "search"), str(DEPTH)]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # before either is waited for
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert told[0][0] == told[1][0] != "0\n"
    inside = list((tmp_path / "search").iterdir())
    assert len(inside) == 1, "no lock and nothing unfinished is left"
    assert len(list(inside[0].iterdir())) == 40
    stored = search_stored(BM25(), index, list(open_collection(collection).queries()), tmp_path / "search", DEPTH)
    assert dict(stored) == BM25().search(index, open_collection(collection).queries(), DEPTH)


def test_a_part_with_a_flipped_bit_is_searched_again(tmp_path: Path, home: Path) -> None:
    collection = open_collection(write_collection(tmp_path / "c", queries=5))
    index, queries = build_index(collection), list(collection.queries())
    expected = BM25().search(index, queries, DEPTH)
    part = search_stored(BM25(), index, queries, tmp_path / "search", DEPTH).path(0)
    whole = part.read_bytes()
    for position in range(7, len(whole), len(whole) // 20):
        part.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        assert dict(search_stored(BM25(), index, queries, tmp_path / "search", DEPTH)) == expected
        assert part.read_bytes() == whole
