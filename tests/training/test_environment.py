"""The environment that a run folder records; what trackers get."""

from __future__ import annotations

import json
import time
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from tests.builders import make_lists, train


def run(folder: Path, tiny_model: Path, *extra: str) -> Path:
    """Train on 12 lists, two epochs."""
    if not (folder / "lists").exists():
        make_lists(folder)
    words = ["--data=ListsData", f"--data.train={folder / 'lists'}", "--data.validation_fraction=0.2"]
    words += ["--model=CrossEncoder", f"--model.name={tiny_model}", "--model.query_length=8"]
    words += ["--model.document_length=24", "--loss=ListNet", "--batch_size=4", "--epochs=2", "--monitor=nDCG"]
    output = folder / "run"
    train([*words, f"--output={output}", *extra])
    return output


def test_run_folder_records_the_environment(tmp_path: Path, tiny_model: Path) -> None:
    began = time.perf_counter()
    folder = run(tmp_path, tiny_model, "--tracker=[]", "--seed=7")
    only = json.loads((folder / "environment.json").read_text())
    assert not (folder / "rerank").exists(), "no tracker, no events"
    assert 0 < only["seconds"] < time.perf_counter() - began
    assert only["packages"]["torch"] == version("torch")
    assert only["packages"]["transformers"] == version("transformers")
    assert only["threads"] == torch.get_num_threads()


def test_tensorboard_logs_the_metrics(tmp_path: Path, tiny_model: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = run(tmp_path, tiny_model, "--tracker=[tensorboard]")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    events = accumulator.EventAccumulator(str(folder / "rerank"), size_guidance={"scalars": 0}).Reload()
    found = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    steps = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    assert [step for step, _ in found["loss"]] == [step for step, _ in steps]
    assert [value for _, value in found["loss"]] == pytest.approx([value for _, value in steps], rel=1e-6)
    validations = [(line["step"], line["validation"]["nDCG"]) for line in lines if "validation" in line]
    assert len(validations) == 2
    assert found["validation/nDCG"] == [(step, pytest.approx(value, rel=1e-6)) for step, value in validations]
