"""Settings that make no sense: files, options and Python refuse them with one line, before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rerank.errors import UserError
from rerank.evaluation.measures import parse_measures
from rerank.lists.data import ListsData
from rerank.settings.configs import assign
from rerank.settings.ranges import RANGES, Range, check_range
from rerank.training.config import Optimization, check_values
from rerank.training.configuration import check

INF, NAN = float("inf"), float("nan")
BAD = [
    *[
        (f"optimization.{key}", value)
        for key in ("head_lr", "encoder_lr", "weight_decay")
        for value in (-1, -1e-9, INF)
    ],
    *[("optimization.max_grad_norm", value) for value in (-1, 0, NAN)],
    *[("optimization.warmup", value) for value in (-0.1, 1.01, 2, NAN)],
    *[("data.depth", value) for value in (0, -1)],
    *[("data.validation_share", value) for value in (-0.1, 1, 2)],
    *[(key, 0) for key in ("epochs", "steps_per_epoch", "batch_size", "micro_batch_size", "token_budget")],
    *[(key, -1) for key in ("patience", "checkpoint_every", "seed")],
    *[(f"model.{key}", value) for key in ("query_length", "document_length") for value in (0, -5)],
    *[("model.dropout", value) for value in (-0.1, 1, NAN)],
    ("model.start_depth", 0),
    ("model.start_weight", -0.5),
]
MEASURES = ["P@True", "AP(rel=0)", "SetF(beta=-1)", "nDCG@10^20", "nDCG@100000000000000000000", "P@0"]
PLAIN: dict[str, Any] = {
    "data": {"class_path": "ListsData", "init_args": {"train": "nowhere"}},
    "model": {"class_path": "CrossEncoder", "init_args": {"name": "nowhere"}},
    "loss": {"class_path": "ListNet"},
}


def line(action: Any, *arguments: Any) -> str:
    with pytest.raises(UserError) as refused:
        action(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(("key", "value"), BAD)
def test_the_same_line_from_everywhere(tmp_path: Path, key: str, value: float) -> None:
    """What is parsed is refused without its data and model being there."""
    settings: dict[str, Any] = yaml.safe_load(yaml.safe_dump(PLAIN))
    assign(settings, key, value)
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(PLAIN))
    written = yaml.safe_dump(value).split("\n")[0]
    said = line(check_range, key, value)
    assert said.startswith(f"{key}: must be {RANGES[key]}, not ")
    assert line(check, ["--config", str(tmp_path / "c.yaml")]) == said
    assert line(check, ["--config", str(tmp_path / "plain.yaml"), f"--{key}={written}"]) == said
    assert line(check, settings) == said


@pytest.mark.parametrize(
    "arguments", [{"depth": 0}, {"validation_share": 1}, {"validation_share": NAN}, {"validation_share": -1}]
)
def test_python_refuses_what_files_refuse(arguments: dict[str, float]) -> None:
    key, value = next(iter(arguments.items()))
    assert line(lambda: ListsData("nowhere", **arguments)) == line(check_range, f"data.{key}", value)


def test_python_refuses_optimization() -> None:
    from rerank.losses import ListNet
    from rerank.models.vectors.mlp import MLP
    from rerank.training.config import TrainConfig

    for key, value in (("head_lr", -1.0), ("warmup", 2.0), ("max_grad_norm", 0.0)):
        optimization = Optimization(**{key: value})
        config = TrainConfig(ListsData("nowhere"), MLP(), ListNet(), optimization=optimization)
        said = line(check_values, config, ListNet)
        assert said == line(check_range, f"optimization.{key}", value)


@pytest.mark.parametrize("measure", MEASURES)
def test_measures_that_none_computes(measure: str) -> None:
    line(parse_measures, measure)


def test_what_makes_sense_passes() -> None:
    check({**PLAIN, "optimization": {"max_grad_norm": None, "warmup": 1, "head_lr": 0}})
    assert str(Range(0, 1)) == "in [0, 1]"
    assert str(Range(0, 1, without_low=True, without_high=True)) == "in (0, 1)"
    parse_measures("P@10 AP(rel=2) SetF(beta=0.5) nDCG@1000 IPrec@0 Success@5")
