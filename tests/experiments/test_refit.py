"""The second training of what validation chose, on training and validation lists together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rerank.commands.experiment import experiment
from rerank.errors import UserError
from rerank.evaluation.measures import evaluate
from rerank.features.letor import LetorData
from rerank.retrieval.runs import read_run
from tests.builders import train, write_folds
from tests.experiments.settings import write_experiment


@pytest.fixture
def made(tmp_path: Path, home: Path) -> Path:
    return write_folds(tmp_path / "made")


def write_config(folder: Path, **changes: Any) -> str:
    network = {"class_path": "MLP", "init_args": {"hidden": [4]}}
    trees = {"class_path": "LightGBM", "init_args": {"min_data_in_leaf": 2, "trees": 30}}
    data = {"class_path": "LetorData", "init_args": {"path": str(folder / "made")}}
    settings = {
        "folds": [1],
        "methods": {
            "network": {"set": {"loss": "ListNet", "model": network}, "search": {"optimization.head_lr": [0.1, 0.001]}},
            "trees": {"set": {"model": trees}},
        },
        "refit": {"data.join_validation": True},
    } | changes
    base = {"data": data, "model": network, "epochs": 3, "patience": 4, "batch_size": 4}
    return write_experiment(folder, base=base, **settings)


def test_lists_are_joined(made: Path) -> None:
    apart, together = LetorData(str(made), 1).splits(0), LetorData(str(made), 1, join_validation=True).splits(0)
    assert together.validation is None and apart.validation is not None and together.test is not None
    assert together.train.query_ids == apart.train.query_ids + apart.validation.query_ids
    grades = np.concatenate([apart.train.grades, apart.validation.grades])
    np.testing.assert_array_equal(together.train.grades, grades)


def test_the_second_model_is_the_one_that_is_measured(made: Path, tmp_path: Path) -> None:
    """It is what training by hand gives, with the chosen point, on the joined lists."""
    assert experiment([write_config(tmp_path)]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    cells = {cell["method"]: cell for cell in results["cells"]}
    qrels = LetorData(str(made), 1).splits(0).test.qrels  # type: ignore[union-attr]
    assert qrels is not None
    for method, cell in cells.items():
        folder = tmp_path / "out" / cell["folder"]
        assert "-refit-" in folder.name
        settings = yaml.safe_load((folder / "config.yaml").read_text())
        assert settings["patience"] is None and settings["data"]["init_args"]["join_validation"] is True
        again = tmp_path / method
        train([f"--config={folder / 'config.yaml'}", f"--output={again}", "--test=true"])
        assert read_run(again / "test.trec") == read_run(folder / "test.trec")
        found = evaluate(read_run(folder / "test.trec"), qrels, "AP").mean["AP"]
        assert results["table"][method]["values"]["AP"]["mean"] == pytest.approx(found)
        others = [path for path in folder.parent.iterdir() if path != folder]
        assert others and not any(list(path.glob("test*")) for path in others), "only the second is measured"
    second = tmp_path / "out" / cells["trees"]["folder"]
    (log,) = (path / "metrics.jsonl" for path in second.parent.iterdir() if path != second)
    values = [next(iter(json.loads(line)["validation"].values())) for line in log.read_text().splitlines()]
    settings = yaml.safe_load((second / "config.yaml").read_text())
    assert settings["model"]["init_args"]["trees"] == int(np.argmax(values)) + 1
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("measures.json")}
    assert len(written) == 5, "two points and one, and a second training of each method"
    assert experiment([write_config(tmp_path)]) == 0
    again = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("measures.json")}
    assert again == written, "nothing is trained again"


def test_keys_that_the_data_does_not_have(made: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"refit.*: .*join"):
        experiment([write_config(tmp_path, refit={"data.join_valdation": True}), "--dry-run"])
    with pytest.raises(UserError, match=r"refit\.dat"):
        experiment([write_config(tmp_path, refit={"dat.join_validation": True}), "--dry-run"])
