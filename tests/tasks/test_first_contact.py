"""What somebody sees who trains on lists of their own for the first time."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import rerank
from tests.builders import make_lists
from tests.evaluation.scored import evaluate

SMALL = {"query_length": 8, "document_length": 24}


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> rerank.Lists:
    """Two systems; ``dense`` knows the grades but for noise."""
    frame = make_lists(tmp_path_factory.mktemp("lists"), [12] * 12).to_dataframe()
    noise = np.random.default_rng(0).normal(0, 0.7, len(frame))
    return rerank.Lists.from_dataframe(frame.assign(dense=frame["grade"] + noise))


@pytest.fixture
def parts(lists: rerank.Lists) -> dict[str, rerank.Lists]:
    return {"train": lists.select(range(6)), "validation": lists.select([6, 7, 8]), "test": lists.select([9, 10, 11])}


def train(model: rerank.Model, parts: dict[str, rerank.Lists], output: Path) -> rerank.Training:
    others = {"validation": parts["validation"], "test": parts["test"], "batch_size": 3, "monitor": "nDCG@5"}
    return rerank.train(model, parts["train"], rerank.SmoothINDCG(alpha=2.0), output=output, **others)


def linear() -> rerank.Model:
    return rerank.MLP(hidden=[], columns=["bm25"])


def test_train_logs_to_unconfigured_scripts(
    parts: dict[str, rerank.Lists],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = logging.getLogger("rerank")
    caplog.set_level(logging.NOTSET, "rerank")
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "propagate", False)  # pytest's handlers are not reached
    run = train(linear(), parts, tmp_path / "run")
    assert not log.handlers and log.level == logging.NOTSET, "it is as it was"
    lines = capsys.readouterr().err.splitlines()
    train(linear(), parts, tmp_path / "run")
    assert "is complete" in capsys.readouterr().err
    assert any(line.startswith("epoch 1: loss") for line in lines)
    assert lines[-1] in str(run).splitlines() and lines[-1].startswith("  model (epoch")


def test_training_prints_its_results(tiny_model: Path, parts: dict[str, rerank.Lists], tmp_path: Path) -> None:
    run = train(rerank.CrossEncoder(str(tiny_model), **SMALL), parts, tmp_path / "run")
    head, *lines = str(run).splitlines()
    assert head.startswith("CrossEncoder trained with SmoothINDCG(") and head.endswith("alpha=2.0)")
    assert lines[-1] == f"model: {tmp_path / 'run' / 'best'}"
    assert str(run.results) in str(run)
    for name in ("validation", "test"):
        split, lists = getattr(run.results, name), parts[name]
        first = evaluate(lists.run("bm25"), lists.qrels or {}, "nDCG@5").mean["nDCG@5"]
        ours = split["model"].mean["nDCG@5"]
        assert split["first_stage"].mean["nDCG@5"] == pytest.approx(first)
        assert split["model"].difference == pytest.approx(ours - first)
        assert any(f"{ours:.4f}  {ours - first:+.4f} [" in line for line in lines)
    assert "difference" in run._repr_html_()
    assert repr(run) == str(run)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_scores_of_random_weights_are_warned_of(
    tiny_model: Path, parts: dict[str, rerank.Lists], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text, lists = rerank.CrossEncoder(str(tiny_model), **SMALL), parts["train"]
    text.name = "one of this test"  # each is warned of once a process
    for score in (lambda: text.predict(lists), lambda: text.predict([("a", "b")]), lambda: text.rank("a", ["b"])):
        score()
    rerank.rerank_lists(text, lists)
    (warning,) = warnings_of(caplog)
    assert "one of this test: has no trained head (classifier" in warning and "rerank.train" in warning
    caplog.clear()
    run = train(text, parts, tmp_path / "run")
    text.name = "another of this test"
    for model in (text, run.model, rerank.CrossEncoder(str(tmp_path / "run" / "best"))):
        model.predict(lists)  # trained in place, loaded, loaded by name
    rerank.CrossEncoder(str(tiny_model), **SMALL, residual_columns="bm25").predict(lists)  # nothing is random
    assert not warnings_of(caplog)
