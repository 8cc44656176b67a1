"""BM25 on real collections has its known measures; skipped without ../shared/data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rerank.commands.cli import main
from rerank.lists import Lists
from rerank.retrieval import read_run
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("collection", "ndcg", "queries"), [("cranfield", 0.322, 225), ("beir:scifact/test", 0.679, 300)]
)
def test_retrieve_reproduces_bm25(collection: str, ndcg: float, queries: int, shared_data: Path, home: Path) -> None:
    """A process of its own is needed because ir_datasets reads its home when it is imported."""
    environment = os.environ | {"IR_DATASETS_HOME": str(shared_data / "ir_datasets"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "rerank", "retrieve", "--collection", collection, "--output", str(home / "lists")]
    done = subprocess.run(command, cwd=shared_data, env=environment, check=True, capture_output=True, text=True)
    lists = Lists.open(home / "lists")
    assert len(lists) == len(read_run(home / "lists/run.trec")) == queries and lists.lengths.max() == 150
    assert lists.grades.min() == 0 and ("negative grades" in done.stderr) == (collection == "cranfield")
    words = ["--qrels", str(home / "lists/qrels.trec"), "--runs", str(home / "lists/run.trec"), "--measures", "nDCG@10"]
    assert main(["evaluate", *words, "--json", str(home / "t.json")]) == 0
    (row,) = json.loads((home / "t.json").read_text())["rows"]
    assert row["mean"] == pytest.approx(ndcg, abs=0.0005)
