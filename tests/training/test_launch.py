"""What processes that train together are told, and agree on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from rerank.errors import UserError
from rerank.lists.data import ListsData
from rerank.losses import ListNet
from rerank.models.vectors.mlp import MLP
from rerank.scoring.together import check_gpus, group, together
from rerank.training import launch
from rerank.training.accumulate import MemoryLimits
from rerank.training.config import TrainConfig
from rerank.training.launch import agree, chosen_precision, micro_batch_size, start_accelerator
from tests.forked import fork, ranks
from tests.training.helpers import by_two


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    with pytest.raises(UserError, match="8 processes on a machine with 2 GPUs; start one for each") as caught:
        check_gpus()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("gpus", "processes", "rank", "said"),
    [(8, 1, 0, "1 of 8 GPUs are used"), (8, 2, 1, ""), (8, 8, 0, ""), (1, 1, 0, ""), (0, 4, 0, "")],
)
def test_idle_gpus_are_said_once(
    gpus: int, processes: int, rank: int, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    monkeypatch.setenv("RANK", str(rank))
    with caplog.at_level(logging.INFO, "rerank"):
        check_gpus()
    assert bool(caplog.records) == bool(said) and said in caplog.text


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
    ],
)
def test_precision_raises_when_launcher_and_configuration_differ(
    configured: str, switch: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", switch)
    with pytest.raises(UserError, match=said):
        chosen_precision(configured)  # type: ignore[arg-type]


def config(**settings: Any) -> TrainConfig:
    return TrainConfig(ListsData("lists"), MLP(hidden=[4]), ListNet(), batch_size=16, **settings)


@pytest.mark.parametrize(
    ("settings", "launched", "processes", "size"),
    [
        ({}, None, 2, None),
        ({"micro_batch_size": 3}, None, 2, 3),
        ({"gradient_accumulation_steps": 4}, None, 2, 2),
        ({}, 4, 1, 4),
        ({"gradient_accumulation_steps": 4}, 4, 1, 4),
        ({"gradient_accumulation_steps": 3}, None, 1, 6),
        ({}, 100, 2, 1),
    ],
)
def test_accumulation_steps_cut_the_batch(
    settings: dict[str, int], launched: int | None, processes: int, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "launched_accumulation_steps", lambda: launched)
    assert micro_batch_size(config(**settings), processes) == size


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps: 2 contradicts .*_steps 4"),
        ({"micro_batch_size": 2}, "micro_batch_size: 2 and gradient_accumulation_steps: 4 both cut the batch"),
    ],
)
def test_accumulation_steps_raise_when_settings_differ(
    settings: dict[str, int], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "launched_accumulation_steps", lambda: 4)
    with pytest.raises(UserError, match=said):
        micro_batch_size(config(**settings), 1)


def test_unknown_trackers_raise(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^accelerate: Unsupported logging capability: nonsense"):
        start_accelerator("fp32", tmp_path, ["nonsense"])


@pytest.mark.parametrize(
    ("limits", "least"),
    [
        ((MemoryLimits(4096, 900), MemoryLimits(2048, None)), (2048, 900)),
        ((MemoryLimits(1024, None), MemoryLimits(2048, None)), (1024, None)),
    ],
)
def test_processes_keep_to_the_least_of_their_limits(
    limits: tuple[MemoryLimits, MemoryLimits], least: tuple[int, int | None], tmp_path: Path
) -> None:
    def agreed(process: int) -> tuple[int, int | None]:
        agree(limits[process], torch.device("cpu"))
        return limits[process].token_budget, limits[process].full_tokens

    assert by_two(tmp_path, agreed) == [least, least]


def meets_twice() -> None:
    """What a script does that adds the scores of two models, or trains twice."""
    for _ in range(2):
        with group(), together():
            assert torch.distributed.is_initialized()


def test_the_processes_of_a_script_meet_for_each_task() -> None:
    processes = [fork(meets_twice, environment=rank) for rank in ranks(2)]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
