"""Estimates of how long a training takes, by clocks that the tests turn."""

from __future__ import annotations

import logging
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import rerank
from rerank import progress
from rerank.progress import FIRST, Pace
from tests.builders import make_lists


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Seconds that have passed, and how many cores the process had."""
    clock = SimpleNamespace(now=0.0, cores=1.0)
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(progress.time, "process_time", lambda: clock.now * clock.cores)
    return clock


def run(clock: SimpleNamespace, steps: int, seconds: float, first: float = 0.0) -> tuple[dict[int, str], list[float]]:
    """The estimates of steps that all take the same but the first, and when they were made."""
    estimates, pace, times = dict[int, str](), Pace(steps), list[float]()
    for step in range(1, steps + 1):
        clock.now += seconds + (first if step == 1 else 0)
        if (line := pace.estimate(step)) is not None:
            estimates[step] = line
            times.append(clock.now)
    return estimates, times


def test_the_first_step_is_not_counted_and_the_rest_is_multiplied(clock: SimpleNamespace) -> None:
    lines, _ = run(clock, 101, 6.0, first=500.0)
    assert lines[2] == "step 2 of 101: the others take about 10 min at 6 s each"  # 99 * 6 s
    assert all("at 6 s each" in line for line in lines.values())


@pytest.mark.parametrize("seconds", [0.001, 0.3, 6.0, 700.0])
def test_estimates_come_neither_at_once_nor_all_the_time(seconds: float, clock: SimpleNamespace) -> None:
    lines, times = run(clock, 400, seconds)
    assert 400 not in lines, "nothing is left then"
    assert all(late - early >= max(progress.EVERY, 0.099 * 400 * seconds) for early, late in pairwise(times))
    assert bool(lines) == (399 * seconds > FIRST)
    assert not lines or times[0] <= FIRST + 2 * seconds + 1e-6


def test_what_lies_between_epochs_is_left_out_and_cores_are_time_of_the_processor(clock: SimpleNamespace) -> None:
    one = Pace(100)
    one.estimate(1)
    clock.now = 1000.0  # validation
    clock.cores = 0.25
    one.begin()
    clock.now = 1010.0
    assert one.estimate(2) == "step 2 of 100: the others take about 16 min at 10 s each"
    assert one.cores == pytest.approx(0.25)


@pytest.mark.parametrize(("threads", "cores"), [(4, 1.3), (4, 3.9), (1, 0.1)])
def test_a_training_says_how_long_it_takes_and_that_its_threads_wait(
    threads: int, cores: float, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FIRST", 1e-9)
    monkeypatch.setattr(progress, "EVERY", 0.0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(Pace, "cores", cores)
    lists = make_lists(tmp_path, [4] * 12)
    model = rerank.MLP(hidden=[4], columns=["bm25"])
    with caplog.at_level(logging.INFO, "rerank"):
        rerank.train(model, lists, rerank.ListNet(), output=tmp_path / "run", validation=None, batch_size=3, epochs=2)
    estimates = [line for line in caplog.messages if "the others take about" in line]
    assert estimates and all(re.match(r"step \d of 8: ", line) for line in estimates)
    hints = [line for line in caplog.messages if "OMP_NUM_THREADS=" in line]
    assert len(hints) == (cores == 1.3) and all(line.startswith("4 threads had 1.3 cores") for line in hints)
    assert all("OMP_NUM_THREADS=1 " in line for line in hints)
