"""Launchers, and the settings that processes agree on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.utils import write_basic_config

from rerank.errors import UserError
from rerank.lists.data import ListsData
from rerank.losses import ListNet
from rerank.models.vectors.networks import MLP
from rerank.scoring.shared import join, together
from rerank.training import launch
from rerank.training.accumulate import MemoryLimits
from rerank.training.config import TrainConfig
from rerank.training.launch import agree, chosen_precision, make_accelerator, micro_batch_size
from tests.builders import write_features
from tests.conftest import ROOT
from tests.forked import fork, ranks
from tests.training.helpers import by_two


@pytest.mark.parametrize(
    ("configured", "switch", "chosen"),
    [("auto", "bf16", "bf16"), ("bf16", "bf16", "bf16"), ("fp32", "no", "fp32"), ("bf16", None, "bf16")],
)
def test_precision_comes_from_the_launcher_or_the_configuration(
    configured: str, switch: str | None, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if switch is not None:
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", switch)
    assert chosen_precision(configured)[0] == chosen  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("configured", "switch", "said"),
    [
        ("fp32", "bf16", "^precision: fp32 contradicts accelerate launch --mixed_precision bf16"),
        ("auto", "fp8", "^accelerate launch: --mixed_precision fp8 is not supported"),
        ("auto", "fp16", "^accelerate launch --mixed_precision: fp16 needs a GPU, and there is none; use bf16 or fp32"),
        ("fp16", "no", "^precision: fp16 needs a GPU"),
    ],
)
def test_precision_raises_when_it_cannot_be_had(
    configured: str, switch: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", switch)
    monkeypatch.setattr(launch, "on_cpu", lambda: True)
    with pytest.raises(UserError, match=said):
        chosen_precision(configured)  # type: ignore[arg-type]


def config(**settings: Any) -> TrainConfig:
    return TrainConfig(ListsData("lists"), MLP(hidden=[4]), ListNet(), batch_size=16, **settings)


@pytest.mark.parametrize(
    ("configured", "launched", "processes", "size"),
    [(None, None, 2, None), (3, None, 2, 3), (None, 4, 1, 4), (None, 4, 2, 2), (None, 3, 1, 6), (None, 100, 2, 1)],
)
def test_accumulation_steps_cut_the_batch(
    configured: int | None, launched: int | None, processes: int, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "launched_accumulation_steps", lambda: launched)
    assert micro_batch_size(config(micro_batch_size=configured), processes) == size


def test_accumulation_steps_raise_when_settings_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "launched_accumulation_steps", lambda: 4)
    with pytest.raises(UserError, match=r"micro_batch_size: 2 contradicts .*--gradient_accumulation_steps 4"):
        micro_batch_size(config(micro_batch_size=2), 1)


def test_exported_accumulation_steps_do_not_divide_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    weight = torch.ones(1, requires_grad=True)
    make_accelerator("fp32").backward((8 * weight).sum())
    assert weight.grad is not None and weight.grad.item() == 8


def test_unknown_trackers_raise(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^accelerate: Unsupported logging capability: nonsense"):
        make_accelerator("fp32", tmp_path, ["nonsense"])


def test_agree_takes_the_least_limits(tmp_path: Path) -> None:
    limits = MemoryLimits(4096, 900), MemoryLimits(2048)

    def agreed(process: int) -> tuple[int, int]:
        agree(limits[process], make_accelerator("fp32"))
        return limits[process].token_budget, limits[process].full_tokens

    assert by_two(tmp_path, agreed) == [(2048, 900)] * 2


def meets_twice() -> None:
    """Form a group twice, like a script that trains twice."""
    for _ in range(2):
        join()
        with together():
            assert torch.distributed.is_initialized()


@pytest.mark.slow
def test_group_forms_for_each_task() -> None:
    processes = [fork(meets_twice, environment=rank) for rank in ranks(2)]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]


def launched(launcher: list[str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Train a small network by a command of its own."""
    features = write_features(folder / "train.txt")
    command = [sys.executable, "-m", *launcher, "--data=LetorData", f"--data.train={features}", "--model=MLP"]
    command += ["--model.hidden=[4]", "--loss=ListNet", "--batch_size=8", "--steps_per_epoch=2", "--tracker=[]", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = [*command, f"--output={folder / 'run'}"]
    return subprocess.run(done, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


SCRIPT = str(ROOT / "scripts" / "train.py")
ACCELERATE = ["accelerate.commands.launch", f"--config_file={ROOT / 'configs' / 'accelerate' / 'gpus.yaml'}"]
ACCELERATE += [
    "--num_processes=2",
    "--main_process_port=0",
    "--mixed_precision=bf16",
    "--gradient_accumulation_steps=2",
]
TORCHRUN = ["torch.distributed.run", "--nproc_per_node=2", "--standalone"]
BF16 = ["--precision=bf16"]
TWO = "2 processes × 2 micro-batches × 2 lists = 8 lists per step, bf16"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "words", "line"),
    [
        (
            ["rerank", "train"],
            ["--precision=bf16", "--micro_batch_size=4"],
            "1 process × 2 micro-batches × 4 lists = 8 lists per step, bf16",
        ),
        ([*TORCHRUN, SCRIPT], [*BF16, "--micro_batch_size=2"], TWO),
        ([*ACCELERATE, SCRIPT], [], TWO),
        ([*ACCELERATE, "-m", "rerank", "train"], [], TWO),
        ([*ACCELERATE, "--dynamo_backend=aot_eager", SCRIPT], [], f"{TWO}, aot_eager"),
    ],
)
def test_launchers_train_and_log_the_cut(launcher: list[str], words: list[str], line: str, tmp_path: Path) -> None:
    done = launched(launcher, tmp_path, *words)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{line}\n" in done.stderr
    assert (tmp_path / "run" / "results.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "code", "said"),
    [
        ("default", 0, "8 lists per step, bf16"),
        ("fsdp", 1, "accelerate launch: FSDP needs GPUs, and there are none; leave --use_fsdp out"),
        ("deepspeed", 1, "DeepSpeed is not"),
    ],
)
def test_accelerate_config_trains_or_raises_one_line(file: str, code: int, said: str, tmp_path: Path) -> None:
    if torch.accelerator.is_available():
        pytest.skip("what a machine without a GPU does")
    path = ROOT / "configs" / "accelerate" / "fsdp.yaml"
    if file != "fsdp":
        path = tmp_path / "config.yaml"
        write_basic_config("bf16", str(path))
    if file == "deepspeed":
        text = path.read_text().replace('"distributed_type": "NO"', '"distributed_type": "DEEPSPEED"')
        path.write_text(text.replace('"use_cpu": true', '"use_cpu": false, "deepspeed_config": {"zero_stage": 2}'))
    launcher = ["accelerate.commands.launch", f"--config_file={path}", "--num_processes=1", SCRIPT]
    done = launched(launcher, tmp_path)
    assert done.returncode == code, done.stderr[-2000:]
    assert said in done.stderr
