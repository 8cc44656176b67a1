"""Training and scoring by processes of several machines: here two launchers that meet at a loopback address."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate.utils.other import get_free_port
from safetensors.torch import load_file

from rerank.commands.cli import main
from tests.builders import make_lists, make_model, write_features
from tests.conftest import ROOT
from tests.forked import together
from tests.training.helpers import assert_near, assert_same

SCRIPT = str(ROOT / "scripts" / "train.py")
MACHINES = str(ROOT / "configs" / "accelerate" / "machines.yaml")
GPUS = str(ROOT / "configs" / "accelerate" / "gpus.yaml")


def launched(kind: str, machine: int, port: int, folder: Path, words: list[str]) -> subprocess.Popen[str]:
    """The launcher of one of two machines, which works in a folder of its own."""
    if kind == "torchrun":
        launch = ["torch.distributed.run", "--nnodes=2", "--nproc_per_node=1", f"--node_rank={machine}"]
        launch += ["--master_addr=127.0.0.1", f"--master_port={port}"]
    else:
        launch = ["accelerate.commands.launch", "--config_file", MACHINES, "--num_processes=2"]
        launch += [f"--machine_rank={machine}", "--main_process_ip=127.0.0.1", f"--main_process_port={port}"]
    place = folder / f"machine-{machine}"
    place.mkdir(exist_ok=True)
    command = [sys.executable, "-m", *launch, SCRIPT, *words]
    log = (place / "log.txt").open("a")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "RERANK_HOME": str(place / "home")}
    return subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=log, start_new_session=True)


def trained_by_two(kind: str, folder: Path, words: list[str]) -> None:
    port = get_free_port()
    machines = [launched(kind, machine, port, folder, words) for machine in (0, 1)]
    codes = [machine.wait(1800) for machine in machines]
    assert codes == [0, 0], (folder / "machine-0" / "log.txt").read_text()[-3000:]


def best(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "best" / "model.safetensors")


def words_of(folder: Path, dropout: float) -> list[str]:
    make_lists(folder)
    model = make_model(folder / "model", dropout=dropout)
    return [
        *("--data=ListsData", f"--data.train={folder / 'lists'}", "--data.validation_fraction=0.25"),
        *("--model=CrossEncoder", f"--model.name={model}", "--model.query_length=8", "--model.document_length=16"),
        *("--loss=SmoothINDCG", "--epochs=3", "--batch_size=4", "--precision=fp32", "--tracker=[]"),
        "--optimization.encoder_lr=0.001",
    ]


def test_slurm_script_passes_cores_and_signals_early(tmp_path: Path) -> None:
    """srun takes cores from a variable that sbatch does not set; the signal comes before the limit, not with it."""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/bash\necho "$SRUN_CPUS_PER_TASK"\nprintf "%s\\n" "$@"\n')
    srun.chmod(0o755)
    script = ROOT / "configs" / "slurm" / "train.sh"
    allocation = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_CPUS_PER_TASK": "64", "SLURM_JOB_ID": "1"}
    done = subprocess.run(
        ["bash", script, "a b"], env=os.environ | allocation, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-1]) == ("64", "a b")
    for name, told in {"train": r"TERM@(\d+)", "experiment": r"B:TERM@(\d+)"}.items():
        text = (script.parent / f"{name}.sh").read_text()
        assert int(re.findall(rf"(?m)^#SBATCH --signal={told}$", text)[0]) >= 120


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["torchrun", "accelerate"])
def test_two_machines_train_like_one_process(kind: str, tmp_path: Path) -> None:
    """Compare 2 x 1 processes with 1 x 2, and with one that accumulates."""
    words = words_of(tmp_path, dropout=0.0)
    trained_by_two(kind, tmp_path, [*words, f"--output={tmp_path / 'two-machines'}"])
    launch = ["torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    if kind == "accelerate":
        launch = ["accelerate.commands.launch", "--config_file", GPUS, "--num_processes=2", "--main_process_port=0"]
    command = [sys.executable, "-m", *launch, SCRIPT, *words, f"--output={tmp_path / 'two-processes'}"]
    subprocess.run(command, check=True, timeout=1800)
    command = [sys.executable, SCRIPT, *words, f"--output={tmp_path / 'one'}", "--micro_batch_size=1"]
    subprocess.run(command, check=True, timeout=1800)
    assert_same(best(tmp_path / "two-machines"), best(tmp_path / "two-processes"))
    assert_near(best(tmp_path / "two-machines"), best(tmp_path / "one"))


def test_rerank_writes_the_same_run_with_several_processes(tmp_path: Path) -> None:
    lists = write_features(tmp_path / "lists.txt", lengths=[1000] * 56, features=3)
    words = ["--data=LetorData", f"--data.train={write_features(tmp_path / 'train.txt', features=3)}"]
    words += ["--model=SelfAttention", "--model.width=8", "--model.hidden=8", "--loss=ListNet", "--tracker=[]"]
    assert main(["train", *words, "--epochs=1", f"--output={tmp_path / 'run'}"]) == 0
    for processes in (1, 2):
        command = ["rerank", "--model", str(tmp_path / "run" / "best"), "--lists", str(lists)]
        together(processes, [*command, "--output", str(tmp_path / f"{processes}.trec")])
    runs = {(tmp_path / f"{processes}.trec").read_bytes() for processes in (1, 2)}
    assert len(runs) == 1 and runs.pop().count(b"\n") == 56 * 1000
