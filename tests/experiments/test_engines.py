"""Processes of this machine, shares and a Ray cluster train the same results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from rerank.commands.cli import main
from rerank.experiments.engines import Worker
from tests.builders import write_folds
from tests.conftest import ROOT
from tests.experiments.settings import write_experiment
from tests.forked import wait_for

SHARES = 3


def write_config(folder: Path) -> Path:
    """Configure 24 runs of a small network: two methods, six seeds, two learning rates."""
    write_folds(folder / "letor")
    methods = {
        name: {"set": {"loss": name}, "search": {"optimization.head_lr": [0.01, 0.001]}}
        for name in ("ListNet", "RankNet")
    }
    data = {"class_path": "LetorData", "init_args": {"path": str(folder / "letor"), "fold": 1}}
    base = {"data": data, "model": {"class_path": "MLP", "init_args": {"hidden": [8]}}, "loss": "ListNet"}
    base |= {"epochs": 2, "batch_size": 4, "monitor": "nDCG@5", "measures": "AP"}
    settings = {"base": base, "methods": methods, "seeds": [1, 2, 3, 4, 5, 6], "folds": None, "jobs": 2}
    settings |= {"output": str(folder / "here"), "measures": "nDCG@5 AP", "first_stage": "hide"}
    write_experiment(folder, **settings)
    return folder / "experiment.yaml"


def found(output: Path) -> dict[str, bytes]:
    """Read the results and rankings of all runs, by path."""
    names = ("trials/**/results.json", "trials/**/test.trec")
    return {str(path.relative_to(output)): path.read_bytes() for name in names for path in output.glob(name)}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the experiment, trained on this machine."""
    folder = tmp_path_factory.mktemp("engines")
    assert main(["experiment", "--config", str(write_config(folder))]) == 0
    assert len(found(folder / "here")) == 24 + 12
    return folder


def results(output: Path) -> Any:
    return json.loads((output / "results.json").read_text())["table"]


@pytest.mark.slow
def test_run_fails_if_its_process_is_killed_and_the_others_are_trained(here: Path, tmp_path: Path) -> None:
    """A process is killed, as when memory runs out; the same command finishes the work."""
    output = tmp_path / "out"
    command = [sys.executable, "-m", "rerank.commands.cli", "experiment", "--config", str(here / "experiment.yaml")]
    command += ["--output", str(output), "--seeds=[1]", "--jobs=1", "--base.epochs=100"]
    command += ["--base.checkpoint_every=10"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: [*output.glob("trials/*/*/*/*/checkpoints/step-*")] or process.poll() is not None, 900)
    (worker,) = (one for one in psutil.Process(process.pid).children() if "spawn_main" in " ".join(one.cmdline()))
    worker.kill()
    _, said = process.communicate(timeout=1800)
    assert process.returncode == 1 and "its process died" in said
    assert len(found(output)) == 3 + 2
    subprocess.run(command, stderr=subprocess.PIPE, check=True)
    assert len(found(output)) >= 4 + 2


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_workers")
def test_worker_that_died_between_two_jobs_is_started_again(tmp_path: Path) -> None:
    worker = Worker({}, tmp_path / "log")
    job = {"folder": str(tmp_path / "trial"), "settings": {}, "fingerprint": ""}
    said = worker.do(job)  # an error of the settings
    assert said and "died" not in said
    process = psutil.Process(worker._process)
    process.kill()
    process.wait()
    wait_for(lambda: worker._pool._broken, 60)  # which the pool notices a moment later
    assert worker.do(job) == said
    worker.end()


@pytest.mark.slow
def test_shares_train_as_one_process_does(here: Path, tmp_path: Path) -> None:
    """An array of Slurm trains all runs; the command without a share only writes the tables."""
    words = ["--config", str(here / "experiment.yaml"), "--output", str(tmp_path / "out"), "--jobs=1"]
    script = ["bash", str(ROOT / "configs" / "slurm" / "experiment.sh"), *words]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    array = [
        subprocess.Popen(
            script,
            env=os.environ | {"PATH": path, "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": str(SHARES)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for task in range(SHARES)
    ]
    said = [job.communicate(timeout=1800)[1] for job in array]
    assert [job.returncode for job in array] == [0] * SHARES, said
    assert all(f"share {task}/{SHARES} is through" in text for task, text in enumerate(said))
    assert all(text.count(": validation nDCG@5") == 24 // SHARES for text in said)
    assert not (tmp_path / "out" / "results.json").exists()
    assert main(["experiment", *words]) == 0
    assert not list((tmp_path / "out" / "workers").glob("*")), "no process was needed"
    assert found(tmp_path / "out") == found(here / "here")
    assert results(tmp_path / "out") == results(here / "here")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--share=3/3"], "--share: '3/3' is out of range; use 0/3 to 2/3"),
        (["--share=1"], "--share: '1' is not NUMBER/COUNT"),
        (["--num_gpus=1"], "num_cpus, num_gpus: are for engine: ray"),
        (["--engine=ray", "--num_cpus=0"], "num_cpus: must be at least 1"),
        (["--engine=rey"], "rey"),
    ],
)
def test_experiment_refuses_invalid_engines(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", "--config", str(write_config(tmp_path)), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "here").exists()


@pytest.mark.slow
def test_ray_trains_as_this_machine_does(here: Path, tmp_path: Path) -> None:
    """The command starts an instance of Ray, and stops it."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'rerank-direct[ray]'")
    command = [sys.executable, "-m", "rerank", "experiment", "--config", str(here / "experiment.yaml"), "--engine=ray"]
    command += ["--jobs=null", "--output", str(tmp_path / "out"), "--seeds=[1]"]
    environment = os.environ | {"RAY_ADDRESS": "local"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    there, whole = found(tmp_path / "out"), found(here / "here")
    assert len(there) == 4 + 2
    assert all(whole[name] == content for name, content in there.items())
    command[-1:] = ["--seeds=[2]", "--num_cpus=1000"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert "no machine of the Ray cluster has 1000 CPUs and 0 GPUs" in done.stderr and done.returncode == 2
