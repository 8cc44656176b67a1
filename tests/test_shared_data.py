"""The whole way on real collections and the real MiniLM, where they are at hand."""

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

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def value(path: Path, measure: str) -> float:
    return next(row["mean"] for row in json.loads(path.read_text())["rows"] if row["measure"] == measure)


def test_scifact_from_bm25_to_a_table(shared_data: Path, home: Path) -> None:
    for split in ("train", "test"):
        words = ["--collection", f"beir:{shared_data}/scifact/{split}", "--output", str(home / split)]
        assert main(["retrieve", *words]) == 0
    words = ["--qrels", str(shared_data / "scifact/qrels/test.tsv"), "--runs", str(home / "test/run.trec")]
    assert main(["evaluate", *words, "--json", str(home / "bm25.json")]) == 0
    assert value(home / "bm25.json", "nDCG@10") == pytest.approx(0.679, abs=0.0005)

    lists = Lists.open(home / "test")
    assert len(lists) == 300
    assert lists.lengths.max() == 150
    words = [f"--data.train={home / 'train'}", f"--data.test={home / 'test'}", "--data.depth=2", "--steps_per_epoch=2"]
    words += ["--data=ListsData", "--model=CrossEncoder", f"--model.name={MINILM}", "--model.document_length=64"]
    words += ["--loss=DirectMetric", "--loss.measure=nDCG@10", "--loss.relaxation=SmoothI", "--batch_size=2"]
    words += ["--sampler=PositivesNegatives", "--sampler.negatives=3", f"--output={home / 'run'}"]
    assert main(["train", *words]) == 0
    found = json.loads((home / "run/results.json").read_text())["test"]["model"]["mean"]["RR"]
    first_two = sum(
        any(scored.id in lists.qrels[query] for scored in ranked[:2])  # type: ignore[index]
        for query, ranked in lists.run().items()
    )
    assert found <= first_two / 300, "reranking two candidates finds no more than these two"
    assert found >= first_two / 300 / 2


def test_cranfield_through_ir_datasets(shared_data: Path, home: Path) -> None:
    """In a process of its own: ir_datasets reads its home when it is imported."""
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
