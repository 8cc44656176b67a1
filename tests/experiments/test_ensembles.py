"""Rows of a table that are made of other rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rerank.commands.experiment import experiment
from rerank.evaluation.measures import evaluate
from rerank.features.letor import letor_lists
from rerank.retrieval.fuse import fuse
from rerank.retrieval.runs import read_run
from tests.builders import write_folds
from tests.experiments.settings import write_experiment


def write_config(folder: Path, **changes: Any) -> str:
    data = {"class_path": "LetorData", "init_args": {"path": str(folder / "made")}}
    model = {"class_path": "MLP", "init_args": {"hidden": [4]}}
    methods = {"ListNet": {"set": {"loss": "ListNet"}}, "Hinge": {"set": {"loss": "PairwiseHinge"}}}
    base = {"data": data, "model": model, "epochs": 2, "batch_size": 4}
    ensembles = {"Both": ["ListNet", "Hinge"]}
    settings = {"folds": [1], "seeds": [1, 2], "methods": methods, "ensembles": ensembles}
    return write_experiment(folder, base=base, **settings | changes)


def test_an_ensemble_that_is_added_trains_kept_members_again(tmp_path: Path, home: Path) -> None:
    """It needs their rankings, which are not kept."""
    write_folds(tmp_path / "made")
    kept = str(tmp_path / "kept.jsonl.xz")
    assert experiment([write_config(tmp_path, ensembles={}, keep=kept)]) == 0
    tables = []
    for output in ("out", "other"):
        words = write_config(tmp_path, output=str(tmp_path / output), keep=kept if output == "other" else None)
        assert experiment([words]) == 0
        tables.append(json.loads((tmp_path / output / "results.json").read_text())["table"])
    assert "Both" in tables[0] and tables[0] == tables[1]


def test_an_ensemble_is_the_mean_of_its_members_scores(tmp_path: Path, home: Path) -> None:
    """Of the runs of all members and seeds."""
    made = write_folds(tmp_path / "made")
    assert experiment([write_config(tmp_path)]) == 0
    results: dict[str, Any] = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["table"]["Both"]["cells"] == results["table"]["Both"]["wanted"] == 1
    assert results["table"]["ListNet"]["wanted"] == 2
    runs = {}
    for cell in results["cells"]:
        runs.setdefault(cell["method"], []).append(read_run(tmp_path / "out" / cell["folder"] / "test.trec"))
    members, (both,) = runs["ListNet"] + runs["Hinge"], runs["Both"]
    assert len(members) == 4
    for query, ranked in fuse(members).items():
        means = dict(ranked)
        assert [means[scored.id] for scored in both[query]] == pytest.approx([one.score for one in ranked], abs=1e-5)
    qrels = letor_lists(made / "Fold1" / "test.txt").qrels
    assert qrels is not None
    assert results["table"]["Both"]["values"]["AP"]["mean"] == pytest.approx(evaluate(both, qrels, "AP").mean["AP"])
