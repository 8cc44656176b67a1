"""Cost of a training run, estimated from a few steps and a validation on this device."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from rerank.lists.data import Splits
from rerank.lists.view import Lists
from rerank.models.vectors.trees import Trees
from rerank.progress import duration, log
from rerank.training.batches import Batches
from rerank.training.config import TrainConfig, check_values
from rerank.training.run_folder import RunFolder
from rerank.training.trainer import Trainer

SCORED = 256
"""Candidates at least, unless there are fewer, whose scoring is timed."""


def dry_run(config: TrainConfig, output: str) -> str:
    """Check every input of a training run, and estimate its time from three steps and a validation of some lists.

    Nothing is written but the token caches of lists folders.

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
    some = splits.validation or measured["test"]
    few = None if some is None else some.select(slice(0, 1 + int(np.searchsorted(some.offsets[1:], SCORED))))
    trial = replace(config, epochs=1, steps_per_epoch=3, patience=None, select_epoch_by=None, test=False, tracker=[])
    with TemporaryDirectory() as folder, _quiet():
        trainer = Trainer(RunFolder(Path(folder) / "run", trial, Splits(splits.train, few, None)))
        trainer.run()
        lines = [json.loads(line) for line in trainer.folder.metrics.read_text().splitlines()]
    first, _, last, validation = lines
    size = trainer.batches.batch_size
    trained = 2 * size / (3 * size / last["lists/s"] - size / first["lists/s"])  # per second, after the first step
    run = Batches(splits.train, trainer.usable, config.sampler, config.batch_size, config.steps_per_epoch, config.seed)
    steps, visits = config.epochs * run.steps_per_epoch, config.epochs * run.per_epoch
    report = [f"training: {_listed(splits.train)}, {steps:,} steps over {config.epochs} epochs"]
    candidates = 0
    for name, lists in measured.items():
        if lists is not None:
            times = config.epochs + 1 if name == "validation" else 2 if splits.validation is not None else 1
            report.append(f"{name}: {_listed(lists)}, scored {times} times")
            candidates += times * lists.size
    scored = few.size / validation["seconds"] if few is not None else math.inf
    training, scoring = visits / trained, candidates / scored
    return "\n".join(
        [
            *report,
            f"measured here: {trained:.3g} lists/s in training, {scored:.3g} documents/s in scoring",
            f"estimate: {duration(training)} of training, {duration(scoring)} of scoring, "
            f"{(training + scoring) / 3600:.2g} hours on this device",
        ]
    )


def _listed(lists: Lists) -> str:
    return f"{len(lists):,} lists of {lists.size:,} candidates"


@contextmanager
def _quiet() -> Iterator[None]:
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
