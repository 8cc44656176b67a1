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

pytestmark = pytest.mark.slow


def value(path: Path, measure: str) -> float:
    return next(row["mean"] for row in json.loads(path.read_text())["rows"] if row["measure"] == measure)


def test_retrieve_reproduces_bm25_on_scifact(shared_data: Path, home: Path) -> None:
    words = ["--collection", f"beir:{shared_data}/scifact/test", "--output", str(home / "test")]
    assert main(["retrieve", *words]) == 0
    words = ["--qrels", str(shared_data / "scifact/qrels/test.tsv"), "--runs", str(home / "test/run.trec")]
    assert main(["evaluate", *words, "--json", str(home / "bm25.json")]) == 0
    assert value(home / "bm25.json", "nDCG@10") == pytest.approx(0.679, abs=0.0005)
    lists = Lists.open(home / "test")
    assert len(lists) == 300
    assert lists.lengths.max() == 150


def test_retrieve_reproduces_bm25_on_cranfield(shared_data: Path, home: Path) -> None:
    """A process of its own is needed because ir_datasets reads its home when it is imported."""
    environment = os.environ | {"IR_DATASETS_HOME": str(shared_data / "ir_datasets")}
    command = [sys.executable, "-m", "rerank", "retrieve", "--collection", "cranfield"]
    done = subprocess.run(
        [*command, "--output", str(home / "cranfield")], env=environment, check=True, capture_output=True, text=True
    )
    lists = Lists.open(home / "cranfield")
    counts = lists.store.manifest["counts"]
    assert counts["queries"] == 225
    assert counts["negative_grades"] > 0
    assert f"{counts['negative_grades']} negative grades" in done.stderr
    assert lists.grades.min() == 0
    words = ["--qrels", str(home / "cranfield/qrels.trec"), "--runs", str(home / "cranfield/run.trec")]
    assert main(["evaluate", *words, "--json", str(home / "t.json")]) == 0
    assert value(home / "t.json", "nDCG@10") == pytest.approx(0.322, abs=0.0005)
    assert len(read_run(home / "cranfield/run.trec")) == 225
