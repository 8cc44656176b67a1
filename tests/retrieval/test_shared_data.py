"""BM25 on real collections, against values that were measured apart from this code."""

from __future__ import annotations

from pathlib import Path

import ir_measures
import pytest
from ir_measures import nDCG

from rerank.collections import open_collection
from rerank.retrieval import BM25, build_index, read_run, write_run

MEASURE = nDCG @ 10


def ndcg(qrels: object, run: Path) -> float:
    return ir_measures.calc_aggregate([MEASURE], qrels, ir_measures.read_trec_run(str(run)))[MEASURE]


def test_vaswani(shared_data: Path, home: Path, tmp_path: Path) -> None:
    """Others are in tests/test_shared_data.py."""
    collection = open_collection(f"trec:{shared_data}/vaswani")
    run = BM25().search(build_index(collection), collection.queries(), depth=150)
    assert len(run) == 93
    assert max(len(documents) for documents in run.values()) == 150
    write_run(tmp_path / "run", run)
    assert ndcg(collection.qrels(), tmp_path / "run") == pytest.approx(0.437, abs=5e-4)


def test_published_runs_and_topics(shared_data: Path) -> None:
    """CEDR's runs of Robust04 have lists of fewer than 150 documents; its topics are in TREC's tags."""
    from rerank.collections import read_queries

    run = read_run(shared_data / "robust04" / "cedr" / "f1.test.run")
    topics = {query.id: query.text for query in read_queries(shared_data / "robust04" / "topics.robust04.txt")}
    assert len(run) == 50
    assert run.keys() < topics.keys()
    assert len(topics) == 250
    assert topics["301"] == "International Organized Crime"
