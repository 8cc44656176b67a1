"""A run folder says what it was made of; trackers get what the metrics file gets."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from rerank.storage.files import read_json
from rerank.training.launch import flat_settings
from rerank.training.run_folder import packages, revision
from tests.builders import make_lists, train


def run(folder: Path, tiny_model: Path, *extra: str) -> Path:
    """Train on 12 lists, two epochs."""
    if not (folder / "lists").exists():
        make_lists(folder)
    words = ["--data=ListsData", f"--data.train={folder / 'lists'}", "--data.validation_share=0.2"]
    words += ["--model=CrossEncoder", f"--model.name={tiny_model}", "--model.query_length=8"]
    words += ["--model.document_length=24", "--loss=ListNet", "--batch_size=4", "--epochs=2", "--monitor=nDCG"]
    output = folder / "run"
    train([*words, f"--output={output}", *extra])
    return output


def starts(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "provenance.json").read_text())


def test_it_says_what_decides_the_numbers(tmp_path: Path, tiny_model: Path) -> None:
    began = time.perf_counter()
    folder = run(tmp_path, tiny_model, "--tracker=[]", "--seed=7")
    (only,) = starts(folder)
    assert not (folder / "rerank").exists(), "no tracker, no events"
    assert 0 < only["seconds"] < time.perf_counter() - began
    assert only["seed"] == 7
    assert only["packages"]["torch"] == version("torch")
    assert only["packages"]["transformers"] == version("transformers")
    assert only["hardware"]["threads"] == torch.get_num_threads()
    identity = (folder / "identity.json").read_bytes()
    assert only["id"] == hashlib.sha256(identity).hexdigest() == read_json(folder / "measures.json")["id"]
    train_data, validation = only["data"]["train"], only["data"]["validation"]
    for split in ("train", "validation"):
        assert only["data"][split].items() >= json.loads(identity)["data"][split].items()
    assert train_data["queries"] + validation["queries"] == 12
    assert train_data["texts"] != validation["texts"]

    (folder / "measures.json").unlink()
    run(tmp_path, tiny_model, "--tracker=[]", "--seed=7")
    first, second = starts(folder)
    assert first == only
    assert {key for key in first if first[key] != second[key]} <= {"started", "command", "seconds"}, (
        "the same run, going on"
    )

    other = tmp_path / "other"
    train([f"--config={folder / 'config.yaml'}", f"--output={other}", "--seed=8", "--epochs=1"])
    assert starts(other)[0]["id"] != only["id"]
    assert starts(other)[0]["data"]["train"]["texts"] != train_data["texts"], "the seed keeps others back"


def test_revision_is_that_of_git(tmp_path: Path) -> None:
    assert revision(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    (tmp_path / "a.txt").write_text("one")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert revision(tmp_path) == {"commit": head, "changed": False}
    (tmp_path / "a.txt").write_text("two")
    assert revision(tmp_path) == {"commit": head, "changed": True}


def test_packages_leave_out_tools_for_tests() -> None:
    assert {"torch", "numpy", "ir-measures", "pyserini", "rerank"} <= packages().keys()
    assert not {"pytest", "ruff", "mypy"} & packages().keys()


def test_tensorboard_shows_the_metrics_where_it_is_installed(tmp_path: Path, tiny_model: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = run(tmp_path, tiny_model)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    events = accumulator.EventAccumulator(str(folder / "rerank"), size_guidance={"scalars": 0}).Reload()
    found = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    steps = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    assert [step for step, _ in found["loss"]] == [step for step, _ in steps]
    assert [value for _, value in found["loss"]] == pytest.approx([value for _, value in steps], rel=1e-6)
    validations = [(line["step"], line["validation"]["nDCG"]) for line in lines if "validation" in line]
    assert len(validations) == 2
    assert found["validation/nDCG"] == [(step, pytest.approx(value, rel=1e-6)) for step, value in validations]


def test_settings_are_flat() -> None:
    config = "loss:\n  init_args: {measure: nDCG@10, k: null}\nseed: 4\ntracker: [wandb]\n"
    flat = flat_settings(config)
    assert flat == {"loss.init_args.measure": "nDCG@10", "loss.init_args.k": "None", "seed": 4, "tracker": "['wandb']"}
