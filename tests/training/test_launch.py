"""What processes that train together are told, and agree on."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState

from rerank.errors import UserError
from rerank.scoring.together import check_gpus, group, together
from rerank.training.launch import agree, check_launcher, launched
from rerank.training.step import MemoryLimits
from tests.forked import fork, ranks
from tests.training.helpers import by_two


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    with pytest.raises(UserError, match="8 processes on a machine with 2 GPUs; start one for each") as caught:
        check_launcher()
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
    ("switch", "value", "ours"),
    [
        ("MIXED_PRECISION", "fp16", "--mixed_precision fp16 .* leave it at no, and give --precision"),
        ("GRADIENT_ACCUMULATION_STEPS", "4", "--gradient_accumulation_steps 4 .* leave it at 1, and give --batch_size"),
        ("DYNAMO_BACKEND", "INDUCTOR", "--dynamo_backend inductor .* without torch.compile"),
    ],
)
def test_accelerates_own_switches_are_refused(
    switch: str, value: str, ours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, unset in (("MIXED_PRECISION", "no"), ("DYNAMO_BACKEND", "NO")):  # what the launcher always sets
        monkeypatch.setenv(f"ACCELERATE_{name}", unset)
    check_launcher()
    monkeypatch.setenv(f"ACCELERATE_{switch}", value)
    with pytest.raises(UserError, match=f"^accelerate launch: {ours}"):
        check_launcher()


def test_errors_are_told_as_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"^tracker: Unsupported logging capability: nonsense"):
        launched(["nonsense"], tmp_path)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp8")
    AcceleratorState._reset_state(True)  # what another test has launched in this process would be kept
    with pytest.raises(UserError, match=r"^accelerate launch: Using `fp8` precision requires"):
        launched([], tmp_path)
    AcceleratorState._reset_state(True)


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
