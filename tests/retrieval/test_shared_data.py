"""BM25 on real collections, against values that were measured apart from this code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ir_measures
import pytest
from ir_measures import nDCG

from rerank.collections import open_collection
from rerank.retrieval import BM25, build_index, read_run, write_run

MEASURE = nDCG @ 10
CRANFIELD = """
import json, sys
from rerank.collections import open_collection
from rerank.retrieval import BM25, build_index, write_run
collection = open_collection("cranfield")
write_run(sys.argv[1], BM25().search(build_index(collection), collection.queries()))
print(json.dumps(collection.qrels()))
"""


def ndcg(qrels: object, run: Path) -> float:
    return ir_measures.calc_aggregate([MEASURE], qrels, ir_measures.read_trec_run(str(run)))[MEASURE]


@pytest.mark.parametrize(
    ("name", "queries", "expected"), [("beir:{}/scifact/test", 300, 0.679), ("trec:{}/vaswani", 93, 0.437)]
)
def test_bm25(shared_data: Path, home: Path, tmp_path: Path, name: str, queries: int, expected: float) -> None:
    collection = open_collection(name.format(shared_data))
    run = BM25().search(build_index(collection), collection.queries(), depth=150)
    assert len(run) == queries
    assert max(len(documents) for documents in run.values()) == 150
    write_run(tmp_path / "run", run)
    assert ndcg(collection.qrels(), tmp_path / "run") == pytest.approx(expected, abs=5e-4)


def test_cranfield(shared_data: Path, tmp_path: Path) -> None:
    homes = {"IR_DATASETS_HOME": str(shared_data / "ir_datasets"), "RERANK_HOME": str(tmp_path / "home")}
    # In a process of its own: ir_datasets reads its home when it is imported.
    command = [sys.executable, "-c", CRANFIELD, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **homes}, timeout=120)
    assert "2 of 1400 documents are empty" in done.stderr
    qrels = json.loads(done.stdout)
    assert sum(map(len, qrels.values())) == 1837
    assert ndcg(qrels, tmp_path / "run") == pytest.approx(0.322, abs=5e-4)


def test_published_runs_and_topics(shared_data: Path) -> None:
    """CEDR's runs of Robust04 have lists of fewer than 150 documents; its topics are in TREC's tags."""
    from rerank.collections import read_queries

    run = read_run(shared_data / "robust04" / "cedr" / "f1.test.run")
    topics = {query.id: query.text for query in read_queries(shared_data / "robust04" / "topics.robust04.txt")}
    assert len(run) == 50
    assert run.keys() < topics.keys()
    assert len(topics) == 250
    assert topics["301"] == "International Organized Crime"
