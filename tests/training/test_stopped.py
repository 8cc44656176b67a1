"""Ctrl-C and SIGTERM, sent to real processes: what was trained is kept, and what resumes ends as one left alone."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from safetensors.torch import load_file

from tests.builders import make_lists, make_model
from tests.conftest import ROOT
from tests.training.test_training import assert_same, metrics, progress, weights

SCRIPT = str(ROOT / "scripts" / "train.py")
ALONE = [sys.executable, SCRIPT]
TOGETHER = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--no-python"]
TOGETHER += ["--monitor-interval=0.05", *ALONE]
"""``torchrun`` with the script behind ``--no-python``, so that options of ours stay ours."""


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """A training with dropout, of 90 steps and 30 validations, whose only checkpoint of its own is the last."""
    make_lists(tmp_path)
    return [
        "--data=ListsData",
        f"--data.train={tmp_path / 'lists'}",
        "--data.validation_share=0.2",
        "--model=CrossEncoder",
        f"--model.name={make_model(tmp_path / 'model', dropout=0.1)}",
        "--model.query_length=8",
        "--model.document_length=24",
        "--loss=PairwiseHinge",
        "--batch_size=3",
        "--epochs=30",
        "--checkpoint_every=90",
        "--precision=fp32",
        "--monitor=nDCG",
        "--tracker=[]",
    ]


def started(command: list[str], run: Path) -> subprocess.Popen[str]:
    """A process that trains, some lines of ``metrics.jsonl`` further than before."""
    before = lines(run)
    process = subprocess.Popen([*command, f"--output={run}"], stderr=subprocess.PIPE, text=True)
    waited = time.monotonic()
    while process.poll() is None and lines(run) <= before + 1:
        assert time.monotonic() - waited < 120
        time.sleep(0.005)
    return process


def lines(run: Path) -> int:
    file = run / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


@pytest.mark.parametrize(
    ("command", "codes"),
    [(ALONE, {signal.SIGTERM: 143, signal.SIGINT: 130}), (TOGETHER, {signal.SIGTERM: None})],
    ids=["one process", "two processes"],
)
def test_a_training_that_is_stopped_resumes_bit_for_bit(
    options: list[str], tmp_path: Path, command: list[str], codes: dict[signal.Signals, int | None]
) -> None:
    """Where it was stopped its newest checkpoint is: nothing is trained twice."""
    command = [*command, *options]
    alone, run, rng = tmp_path / "alone", tmp_path / "run", random.Random(0)
    subprocess.run([*command, f"--output={alone}"], check=True, timeout=600, capture_output=True)
    for number, code in codes.items():
        process = started(command, run)
        time.sleep(rng.uniform(0, 0.1))
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
        if (run / "measures.json").exists():
            pytest.fail(f"was through before it was stopped: {said}")
        assert code is None or process.returncode == code, said
        step = re.search(r"at step (\d+) of 90; a checkpoint is written; the same command resumes", said)
        assert step is not None, said
        assert progress(run) == f"step-{int(step[1]):08d}"
        logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert logged[-1]["step"] == int(step[1])
        assert "Traceback" not in said or command[2] == "torch.distributed.run"
    subprocess.run([*command, f"--output={run}"], check=True, timeout=600, capture_output=True)
    assert_same(weights(run), weights(alone))
    assert_same(load_file(run / "best" / "model.safetensors"), load_file(alone / "best" / "model.safetensors"))
    assert metrics(run) == metrics(alone)
    assert (run / "measures.json").read_text() == (alone / "measures.json").read_text()


def test_a_second_signal_leaves_at_once(options: list[str], tmp_path: Path) -> None:
    """A step of half a minute is not waited for."""
    make_lists(tmp_path / "long", [400] * 24, seed=1)
    long = [f"--data.train={tmp_path / 'long' / 'lists'}", "--batch_size=24", "--sampler.depth=400"]
    process = started([*ALONE, *options, *long, "--model.dropout=0.2"], tmp_path / "run")
    process.send_signal(signal.SIGINT)
    time.sleep(1.2)
    if process.poll() is not None:
        pytest.skip("this machine is too fast for a step to be left")
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - asked < 5
    assert "left at once" in said


def test_an_experiment_that_is_stopped_lets_its_cells_write_checkpoints(tmp_path: Path, options: list[str]) -> None:
    base = {
        "data": {"class_path": "FoldsData", "init_args": {"lists": str(tmp_path / "lists"), "folds": 3, "fold": 1}},
        "model": {
            "class_path": "CrossEncoder",
            "init_args": {"name": str(tmp_path / "model"), "query_length": 8, "document_length": 24},
        },
        **{"epochs": 25, "batch_size": 3, "checkpoint_every": 100000, "precision": "fp32", "monitor": "nDCG"},
    }
    config = {"base": base, "seeds": [1, 2], "jobs": 2, "measures": "nDCG", "test": "t-test"}
    config["methods"] = {name: {"set": {"loss": name}} for name in ("PairwiseHinge", "ListNet")}
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "rerank.cli", "experiment", f"--config={tmp_path / 'experiment.yaml'}"]
    alone, output = tmp_path / "alone", tmp_path / "output"
    subprocess.run([*command, f"--output={alone}"], check=True, timeout=500, capture_output=True)

    process = subprocess.Popen(
        [*command, f"--output={output}"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    waited = time.monotonic()
    while process.poll() is None and min(map(lines, output.glob("cells/*/*/*/*/")), default=0) < 10:
        assert time.monotonic() - waited < 120
        time.sleep(0.01)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 143, said
    assert f"of 4 cells are trained; the same command resumes {output}" in said
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
    begun = [
        path.parent for path in output.glob("cells/**/identity.json") if not (path.parent / "measures.json").exists()
    ]
    assert begun
    for cell in begun:
        newest = max(cell.glob("checkpoints/step-*"))
        logged = [json.loads(line) for line in (cell / "metrics.jsonl").read_text().splitlines()]
        assert logged[-1]["step"] == int(newest.name.removeprefix("step-"))
    subprocess.run([*command, f"--output={output}"], check=True, timeout=500, capture_output=True)
    for cell in alone.glob("cells/*/*/*/*/"):
        same = output / cell.relative_to(alone)
        assert_same(load_file(same / "best/model.safetensors"), load_file(cell / "best/model.safetensors"))
        assert metrics(same) == metrics(cell)
    assert (output / "results.json").exists()
