"""Ctrl-C, SIGTERM and SIGKILL, sent to real processes: what resumes ends as one left alone."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace
from pathlib import Path

import psutil
import pytest
import torch

from rerank import stops
from rerank.training.accumulate import MemoryLimits
from rerank.training.checkpoint import State, load_checkpoint, register_state, save_checkpoint
from rerank.training.launch import make_accelerator
from rerank.training.results import Measured
from tests.builders import make_lists, make_model, train
from tests.experiments.settings import short_texts, write_experiment
from tests.forked import Command, started, together
from tests.training.helpers import assert_same_runs


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """A training with dropout, of 90 steps and 30 validations, whose only checkpoint of its own is the last."""
    make_lists(tmp_path)
    return [
        *("--data=ListsData", f"--data.train={tmp_path / 'lists'}", "--data.validation_fraction=0.2"),
        *("--model=CrossEncoder", f"--model.name={make_model(tmp_path / 'model', dropout=0.1)}"),
        *("--model.query_length=8", "--model.document_length=24", "--loss=PairwiseHinge", "--batch_size=3"),
        *("--epochs=30", "--checkpoint_every=90", "--precision=fp32", "--monitor=nDCG", "--tracker=[]"),
    ]


def newest(run: Path) -> str:
    """Return the name of a run's newest checkpoint; empty if there is none."""
    return max((path.name for path in run.glob("checkpoints/step-*")), default="")


def lines(run: Path) -> int:
    file = run / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


def wait_until(done: Callable[[], bool], process: Command | subprocess.Popen[bytes]) -> None:
    """Wait for a moment of a process, which must come before its end."""
    waited = time.monotonic()
    while not done():
        assert process.poll() is None, f"ended with {process.poll()} too early"
        assert time.monotonic() - waited < 300
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "sent"),
    [(1, [signal.SIGTERM, signal.SIGINT, signal.SIGTERM]), (2, [signal.SIGTERM, signal.SIGINT])],
    ids=["one process", "two processes"],
)
def test_stopped_run_resumes_bit_for_bit(
    options: list[str], tmp_path: Path, processes: int, sent: list[signal.Signals]
) -> None:
    """The newest checkpoint is of the step at which it stopped. The signal goes to one process only."""
    alone, run, rng = tmp_path / "alone", tmp_path / "run", random.Random(0)
    together(processes, ["train", *options, f"--output={alone}"])
    total = lines(alone)
    for turn, number in enumerate(sent, 1):
        commands = started(processes, ["train", *options, f"--output={run}"])
        least = turn * total // 5 + rng.randrange(total // 8)
        wait_until(lambda least=least: lines(run) >= least, commands[0])
        commands[0].send_signal(number)
        said, *_ = [command.communicate() for command in commands]
        codes = [command.returncode for command in commands]
        assert not (run / "results.json").exists(), f"was through before it was stopped: {said}"
        assert codes[0] == 128 + number, said
        assert all(code in (128 + number, 143) for code in codes)
        step = re.search(r"at step (\d+) of 90; a checkpoint is written; the same command resumes", said)
        assert step is not None, said
        assert newest(run) == f"step-{int(step[1]):08d}"
        logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert logged[-1]["step"] == int(step[1])
    together(processes, ["train", *options, f"--output={run}"])
    assert_same_runs(run, alone)


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "kills"), [(1, 6), (2, 3)])
def test_killed_run_resumes_bit_for_bit(processes: int, kills: int, options: list[str], tmp_path: Path) -> None:
    """SIGKILLs come at random moments, at most of which a checkpoint is being written."""
    command = ["train", *options, f"--epochs={8 * kills}", "--checkpoint_every=1", "--tracker=[tensorboard]"]
    alone, killed, rng, moments = tmp_path / "alone", tmp_path / "killed", random.Random(0), set()
    together(processes, [*command, f"--output={alone}"])
    for _ in range(kills):
        before, commands = newest(killed), started(processes, [*command, f"--output={killed}"])
        wait_until(lambda before=before: newest(killed) != before, commands[0])  # start-up is not what is tested
        time.sleep(rng.uniform(0, 0.4))
        for process in commands:
            process.send_signal(signal.SIGKILL)
        said = [process.communicate() for process in commands]
        assert [process.returncode for process in commands] == [-signal.SIGKILL] * processes, said
        moments.add(newest(killed))
    assert len(moments) == kills, "each attempt got further than the one before"
    together(processes, [*command, f"--output={killed}"])
    assert_same_runs(killed, alone)


def test_second_signal_from_python_leaves_the_last_checkpoint(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come amid a step, so that what is in memory is no state to resume from."""
    signals = stops._Signals()
    signals.finishing = True
    signals.handle(signal.SIGINT, None)
    signals.at -= 2
    with pytest.raises(stops.Stopped) as twice:
        signals.handle(signal.SIGINT, None)

    def step(*_: object, **__: object) -> None:
        raise twice.value

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    with pytest.raises(stops.Stopped, match=r"resumes .* at its last checkpoint"):
        train([*options, f"--output={tmp_path / 'run'}"])
    assert not newest(tmp_path / "run"), "none was written"


def test_signal_does_not_stop_a_later_task_in_another_thread() -> None:
    def asked_later() -> int | None:
        with stops.finishing():
            return stops.asked()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in parallel, it is ignored
    try:
        with pytest.raises(stops.Stopped), stops.finishing():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asked_later).result() is None


def test_checkpoint_restores_every_number_of_the_progress(tmp_path: Path) -> None:
    accelerator, network = make_accelerator("fp32"), torch.nn.Linear(2, 1)
    start = {"test": Measured({"AP": 0.5}, 9, 0.1, (0.0, 0.2))}
    saved = State(*range(1, 9), limits=MemoryLimits(11, 12), start=start, precision="bf16")
    assert all(value != default for value, default in zip(astuple(saved), astuple(State()), strict=True))
    state = replace(saved)
    register_state(accelerator, network, state)
    save_checkpoint(accelerator, tmp_path, 3)
    vars(state).update(vars(State()))
    for scaler in (None, torch.amp.GradScaler("cpu")):  # the second as on a GPU without bf16
        accelerator.scaler = scaler
        assert load_checkpoint(accelerator, tmp_path)
    assert state == saved


def test_checkpoint_replaces_one_of_the_same_step(tmp_path: Path) -> None:
    """A run stopped while it measures the test lists has written the last step's already."""
    network, state = torch.nn.Linear(2, 1), State(step=3)
    accelerator = make_accelerator("fp32")
    register_state(accelerator, network, state)
    for best in (0.5, 0.75):
        state.best = best
        save_checkpoint(accelerator, tmp_path, 3)
    state.best = None
    assert load_checkpoint(accelerator, tmp_path) and state.best == 0.75
    assert len([*(tmp_path / "checkpoints").iterdir()]) == 1


@pytest.mark.slow
def test_stopped_experiment_writes_checkpoints(tmp_path: Path, options: list[str]) -> None:
    changes = {"epochs": 25, "batch_size": 3, "checkpoint_every": 100000, "monitor": "nDCG"}
    methods = {name: {"set": {"loss": name}} for name in ("PairwiseHinge", "ListNet")}
    settings = {"methods": methods, "folds": [1], "seeds": [1, 2], "jobs": 2, "measures": "nDCG"}
    config = write_experiment(tmp_path, base=short_texts(tmp_path) | changes, **settings)
    command = [sys.executable, "-m", "rerank", "experiment", config]
    output = tmp_path / "output"
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen([*command, f"--output={output}"], stderr=errors, stdout=subprocess.DEVNULL)
    wait_until(lambda: sum(lines(trial) >= 10 for trial in output.glob("trials/*/*/*/*/")) >= 2, process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    code, said = process.wait(), (tmp_path / "errors").read_text()
    assert code == 143, said
    assert f"of 4 runs are trained; the same command resumes {output}" in said
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    trials = [place.parent for place in output.glob("trials/**/fingerprint.json")]
    begun = [trial for trial in trials if not (trial / "results.json").exists()]
    assert begun
    for trial in begun:
        newest = max(trial.glob("checkpoints/step-*"))
        logged = [json.loads(line) for line in (trial / "metrics.jsonl").read_text().splitlines()]
        assert logged[-1]["step"] == int(newest.name.removeprefix("step-"))
    subprocess.run([*command, f"--output={output}"], check=True, capture_output=True)
    assert all((trial / "results.json").exists() for trial in trials)
    assert (output / "results.json").exists()
