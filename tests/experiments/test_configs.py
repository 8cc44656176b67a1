"""Configurations of experiments: those under configs/, errors before training, and searches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rerank.commands.cli import main
from rerank.commands.experiment import experiment
from rerank.experiments.config import ExperimentConfig, Method
from rerank.experiments.plan import ExperimentPlan
from rerank.experiments.runner import checked, configured
from rerank.experiments.trials import Group, point_name
from rerank.settings.parser import read_config
from tests.builders import make_lists, make_model
from tests.conftest import ROOT
from tests.experiments.settings import write_experiment

FILES = sorted(path for path in (ROOT / "configs").rglob("*.yaml") if path.parent.name != "base")
EXPERIMENTS = [path for path in FILES if "methods" in read_config(path)]


@pytest.mark.parametrize(
    ("command", "file", "other"), [("train", "losses", "experiment"), ("experiment", "hinge", "train")]
)
def test_wrong_kind_of_file_names_the_other_command(
    command: str, file: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ROOT / "configs" / "robust04" / f"{file}.yaml"
    assert main([command, "--config", str(path)]) == 2
    assert f"run it with rerank {other} --config {path}" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_run_is_a_training_configuration(path: Path) -> None:
    config = read_config(path)
    key = next(key for key in ("path", "lists", "train") if key in config["base"]["data"]["init_args"])
    config["base"]["data"]["init_args"][key] = "elsewhere"
    plan = checked(configured(config))
    assert len(plan.groups) == len(config["methods"]) * len(config.get("folds") or [None]) * len(
        config.get("seeds", [42])
    )


@pytest.mark.slow
def test_documented_configuration_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs as docs/experiments.md shows it, but with a smaller model and one seed."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "experiments.md").read_text(), re.DOTALL)
    config = yaml.safe_load(next(block for block in blocks if "FoldsData" in block))
    monkeypatch.chdir(tmp_path)
    make_lists(tmp_path / "made", [4] * 12).save(tmp_path / "lists" / "mine")
    small = {"name": str(make_model(tmp_path / "model")), "query_length": 8, "document_length": 24}
    config["base"]["model"]["init_args"] |= small
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(config | {"seeds": [1], "jobs": 1}))
    assert experiment(["--config=experiment.yaml"]) == 0
    table = (tmp_path / config["output"] / "table.md").read_text()
    assert all(name in table for name in [*config["methods"], *config["measures"].split()])
    assert len(list((tmp_path / config["output"] / "trials").rglob("results.json"))) == 2 * 3, "methods times folds"


def test_experiment_fails_before_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_lists(tmp_path, [4] * 6)
    make_model(tmp_path / "model")
    data = {"class_path": "ListsData", "init_args": {"train": str(tmp_path / "lists"), "validation_fraction": 0.3}}
    for changes, message in (
        ({"base": {"data": data}, "folds": None}, "seed 42: the data give no test lists"),
        ({"methods": {"nothing": {"set": {"batch_size": 2}}}}, r"methods\.nothing: loss: a network needs one"),
        ({"output": str(tmp_path / "lists")}, "exists and is not an experiment's folder"),
    ):
        assert main(["experiment", write_experiment(tmp_path, **changes)]) == 2
        assert re.search(message, capsys.readouterr().err)
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_point_name_is_a_short_file_name() -> None:
    assert point_name({"loss.relaxation.alpha": 0.1, "optimization.head_lr": 0.01}) == "alpha=0.1,head_lr=0.01"
    assert point_name({"loss.measure": "nDCG(dcg='exp-log2')@5"}) == "measure=nDCG_dcg=_exp-log2_@5"
    assert point_name({"loss": {"class_path": "ListNet"}}) == "loss=ListNet"
    assert len(point_name({"a/b": "x/" * 99})) == 80 and point_name({}) == "point"


@pytest.mark.parametrize(
    "search", [{"loss.alpha": [3], "loss": ["ApproxNDCG"]}, {"loss": ["ApproxNDCG"], "loss.alpha": [3]}]
)
def test_searched_class_keeps_searched_argument(search: dict[str, Any]) -> None:
    config = ExperimentConfig(output="x", base={}, methods={"A": Method(search=search)})
    plan = ExperimentPlan(config)
    trial = plan.trial(Group("A", None, 1), plan.points(Group("A", None, 1))[0])
    assert trial.settings["loss"] == {"class_path": "ApproxNDCG", "init_args": {"alpha": 3}}


def test_base_of_dotted_keys_does_not_hide_what_is_searched() -> None:
    base = {"optimization": {"weight_decay": 0.1}, "optimization.head_lr": 0.2}
    plan = ExperimentPlan(ExperimentConfig("x", base, {"A": Method(search={"optimization.head_lr": [0.3]})}))
    settings = plan.trial(Group("A", None, 1), plan.points(Group("A", None, 1))[0]).settings
    assert settings["optimization"] == {"weight_decay": 0.1, "head_lr": 0.3}
