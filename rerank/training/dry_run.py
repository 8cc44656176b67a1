"""Cost of a training run, estimated from two steps and one scoring pass on this device."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from rerank.lists.data import Splits
from rerank.lists.view import Lists
from rerank.models.vectors.boosting import Trees
from rerank.progress import duration, log
from rerank.scoring.shared import score_shared
from rerank.training.batches import Batches
from rerank.training.config import TrainConfig, check_values
from rerank.training.run_folder import RunFolder
from rerank.training.trainer import Trainer

SCORED = 256
"""Candidates at least, unless there are fewer, whose scoring is timed."""


def dry_run(config: TrainConfig, output: str) -> str:
    """Check every input of a training run, and estimate its time.

    Three steps are made on the real model, of which the last two are timed, and some lists are scored twice. Nothing is
    written but the token caches of lists folders.

    Raises:
        UserError: a configuration, lists, a model or an output folder that the run cannot use.
    """
    check_values(config, type(config.loss) if config.loss else None, trees=isinstance(config.model, Trees))
    splits = config.data.splits(config.seed)
    RunFolder(output, config, splits).check()
    measured = {"validation": splits.validation, "test": splits.test if config.test else None}
    for lists in (splits.train, *measured.values()):
        if lists is not None:
            config.model.check(lists)
    if isinstance(config.model, Trees):
        return f"training: {_listed(splits.train)}; trees read all of them in every round, which is not timed"
    with _quiet():
        steps, visits, rate = _timed_steps(config, splits.train)
        few = _first_lists(splits.validation or splits.train)
        scored = few.size / _seconds_to_score(config, few)
    lines = [f"training: {_listed(splits.train)}, {steps:,} steps over {config.epochs} epochs"]
    candidates = 0
    for name, some in measured.items():
        if some is not None:
            times = config.epochs + 1 if name == "validation" else 2 if splits.validation is not None else 1
            lines.append(f"{name}: {_listed(some)}, scored {times} times")
            candidates += times * some.size
    training, scoring = visits / rate, candidates / scored
    return "\n".join(
        [
            *lines,
            f"measured here: {rate:.3g} lists/s in training, {scored:.3g} documents/s in scoring",
            f"estimate: {duration(training)} of training, {duration(scoring)} of scoring, "
            f"{(training + scoring) / 3600:.2g} hours on this device",
        ]
    )


def _timed_steps(config: TrainConfig, train: Lists) -> tuple[int, int, float]:
    """Make three steps; return the run's number of steps and of lists, and the lists per second after the first."""
    trial = replace(config, epochs=1, steps_per_epoch=3, patience=None, select_epoch_by=None, tracker=[])
    with TemporaryDirectory() as folder:
        trainer = Trainer(RunFolder(Path(folder) / "run", trial, Splits(train, None, None)))
        trainer.run()
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    first, *_, last = (json.loads(line)["lists/s"] for line in lines[:3])
    size = trainer.batches.batch_size
    rate = 2 * size / (3 * size / last - size / first)
    run = Batches(train, trainer.usable, config.sampler, config.batch_size, config.steps_per_epoch, config.seed)
    return config.epochs * run.steps_per_epoch, config.epochs * run.per_epoch, rate


def _seconds_to_score(config: TrainConfig, lists: Lists) -> float:
    """Score lists twice; return the seconds of the second time."""
    precision = "auto" if config.precision == "fp16" else config.precision
    started = 0.0
    for _ in range(2):
        started = time.perf_counter()
        score_shared(config.model, lists, precision=precision, budget=config.token_budget)
    return time.perf_counter() - started


def _first_lists(lists: Lists) -> Lists:
    """Take the first lists with enough candidates to time."""
    return lists.select(slice(0, 1 + int(np.searchsorted(lists.offsets[1:], SCORED))))


def _listed(lists: Lists) -> str:
    return f"{len(lists):,} lists of {lists.size:,} candidates"


@contextmanager
def _quiet() -> Iterator[None]:
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)
