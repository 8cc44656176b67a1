"""Results of trainings and rerankings, next to the first stage."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rerank.commands.cli import main
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.retrieval.runs import read_run
from rerank.training.results import Measured, Results
from tests.builders import make_lists
from tests.evaluation.scored import evaluate


def test_rerank_logs_the_difference_from_the_first_stage(
    tmp_path: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lists, output = make_lists(tmp_path), tmp_path / "run.trec"
    CrossEncoder(str(tiny_model), query_length=8, document_length=24).save(tmp_path / "best")
    words = ["rerank", f"--model={tmp_path / 'best'}", f"--lists={lists.store.folder}", f"--output={output}"]
    with caplog.at_level(logging.INFO, "rerank"):
        assert main(words) == 0
    assert lists.qrels is not None
    values = [evaluate(run, lists.qrels, "nDCG@10").mean["nDCG@10"] for run in (read_run(output), lists.run())]
    line = f"nDCG@10 {values[0]:.4f}, first stage bm25 {values[1]:.4f}, difference {values[0] - values[1]:+.4f} ["
    assert any(line in message for message in caplog.messages)


def test_results_round_trip(tmp_path: Path) -> None:
    model, first = Measured({"AP": 0.5, "RR": 1.0}, 9, 0.25, [0.125, 0.375]), Measured({"AP": 0.25}, 9)
    for results in (Results("AP", 2, {"model": model, "first_stage": first}, {}, "bm25", 0.3), Results("AP", 0)):
        results.save(tmp_path / "results.json")
        assert Results.load(tmp_path / "results.json") == results
