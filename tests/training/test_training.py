"""Training as a user starts it: small, but with every part real."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import DistributedType

from rerank.errors import UserError
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.storage.files import read_json
from rerank.training.configuration import classes_first
from tests.builders import make_lists, train
from tests.conftest import ROOT
from tests.training.helpers import metrics

SCRIPT = str(ROOT / "scripts" / "train.py")


@pytest.fixture
def options(tmp_path: Path, tiny_model: Path) -> list[str]:
    """Return the options of a small run: 12 uneven lists, 2 of them for validation, batches of 3 lists."""
    make_lists(tmp_path)
    return [
        *("--data=ListsData", f"--data.train={tmp_path / 'lists'}", "--data.validation_fraction=0.2"),
        *("--model=CrossEncoder", f"--model.name={tiny_model}", "--model.query_length=8", "--model.document_length=24"),
        *("--loss=DirectMetric", "--loss.measure=nDCG@10", "--loss.relaxation=SmoothI", "--sampler.depth=8"),
        *("--batch_size=3", "--epochs=3", "--checkpoint_every=1", "--precision=fp32", "--optimization.encoder_lr=1e-3"),
        "--monitor=nDCG",
    ]


def test_run_folder_is_complete(options: list[str], tmp_path: Path) -> None:
    run, before = tmp_path / "run", dict(os.environ)
    measures = train([*options, f"--output={run}"])
    changed = {key for key in before.keys() | os.environ.keys() if before.get(key) != os.environ.get(key)}
    theirs = ("ACCELERATE", "PYTEST", "FORK", "TORCHINDUCTOR", "ONEDNN")
    assert not {key for key in changed if not key.startswith(theirs)}, "it is the user's"
    assert read_json(run / "results.json")["validation"]["model"]["mean"] == measures["validation"]
    assert 0 < measures["validation"]["nDCG"] <= 1
    lines = metrics(run)
    steps = [line for line in lines if "loss" in line]
    validations = [line for line in lines if "validation" in line]
    assert len(validations) == 3
    assert [line["step"] for line in steps] == list(range(1, len(steps) + 1))
    best = max(line["validation"]["nDCG"] for line in validations)  # type: ignore[index]
    assert measures["validation"]["nDCG"] == pytest.approx(best, abs=1e-9)
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["loss"]["init_args"]["measure"] == "nDCG@10"
    assert "best" in (run / "log.txt").read_text()
    environment = read_json(run / "environment.json")
    assert environment["seconds"] > 0 and environment["packages"]["torch"] == version("torch")
    assert not (run / "rerank").exists(), "no tracker, no events"
    assert CrossEncoder(str(run / "best")).missing == []


def test_tensorboard_logs_the_metrics(options: list[str], tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train([*options, "--tracker=[tensorboard]", f"--output={tmp_path / 'run'}"])
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "rerank"), size_guidance={"scalars": 0}).Reload()
    found = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    lines = metrics(tmp_path / "run")
    assert found["loss"] == [(x["step"], pytest.approx(x["loss"], rel=1e-6)) for x in lines if "loss" in x]
    values = [(x["step"], x["validation"]["nDCG"]) for x in lines if "validation" in x]  # type: ignore[index]
    assert found["validation/nDCG"] == [(step, pytest.approx(value, rel=1e-6)) for step, value in values]


def test_training_learns_to_rank_its_own_lists(options: list[str], tmp_path: Path) -> None:
    train(
        [*options, f"--output={tmp_path / 'run'}", "--data.validation_fraction=0", "--epochs=25", "--token_budget=999"]
    )
    losses = [line["loss"] for line in metrics(tmp_path / "run") if "loss" in line]
    assert np.mean(losses[-8:]) < 0.7 * np.mean(losses[:4])
    assert "memory for graphs: " in (tmp_path / "run" / "log.txt").read_text(), (
        "what fits is measured, whatever the budget"
    )


def test_early_stopping_keeps_the_best(options: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    train([*options, f"--output={run}", "--epochs=30", "--patience=2", "--optimization.encoder_lr=0.01"])
    values = [line["validation"]["nDCG"] for line in metrics(run) if "validation" in line]  # type: ignore[index]
    assert len(values) < 30
    assert len(values) - 1 - int(np.argmax(values)) == 2


def test_train_raises_before_anything_is_written(options: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    for extra, message in (
        ("--monitor=nDGC@10", "did you mean 'nDCG'"),
        ("--measures=nDCG@10 APP", "APP"),
        ("--data.train=nowhere", "nowhere"),
        ("--model.query_length=500", "positions"),
        ("--loss.measure=ERR@10", "ERR"),
        ("--tracker=[tensorbord]", "tensorbord"),
        ("--tracker=[comet_ml]", "not all of comet_ml are installed"),
        (f"--data.validation={tmp_path / 'lists'}", r"validation: .* queries are in the training lists, too"),
    ):
        with pytest.raises(UserError, match=message):
            train([*options, f"--output={run}", extra])
        assert not run.exists(), extra


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "accelerate").glob("*.yaml")), ids=lambda path: path.stem)
def test_accelerate_reads_its_configurations(path: Path) -> None:
    config = load_config_from_file(str(path))
    kind = DistributedType.FSDP if path.stem == "fsdp" else DistributedType.MULTI_GPU
    assert config.distributed_type == kind and config.num_processes % config.num_machines == 0
    assert config.mixed_precision == ("bf16" if path.stem == "fsdp" else "no"), "no: the run's configuration decides"
    assert f"--config_file configs/accelerate/{path.name}" in path.read_text(), "it says how to launch"


def test_options_may_come_in_any_order() -> None:
    assert classes_first(["--a.b", "1", "--a", "X"]) == ["--a", "X", "--a.b", "1"]
