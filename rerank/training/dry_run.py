"""Cost of a training run, estimated from a few steps and a validation on this device."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from rerank.lists.data import Splits
from rerank.models.scorer import Scorer
from rerank.progress import log
from rerank.stops import Stopped
from rerank.training.batches import Batches
from rerank.training.config import TrainConfig, check_values
from rerank.training.run_folder import RunFolder
from rerank.training.trainer import Trainer

SCORED = 256
"""Candidates at least, unless there are fewer, whose scoring is timed."""


def dry_run(config: TrainConfig, output: str) -> str:
    """Check every input of a training run, and estimate its time from three steps and a validation of some lists.

    Only the token caches of lists folders are written. Of several processes, the main one returns the estimate.

    Raises:
        UserError: a configuration, lists, a model or an output folder that the run cannot use.
    """
    check_values(config, type(config.loss) if config.loss else None, trees=not isinstance(config.model, Scorer))
    splits = config.data.splits(config.seed)
    RunFolder(output, config, splits).check()
    validation, test = splits.validation, splits.test if config.test else None
    for lists in filter(None, (splits.train, validation, test)):
        config.model.check(lists)
    found = f"training: {len(splits.train):,} lists of {splits.train.size:,} candidates"
    if not isinstance(config.model, Scorer):
        return f"{found}; trees read all of them in every round, which is not timed"
    some = validation or test
    few = None if some is None else some.select(slice(0, 1 + int(np.searchsorted(some.offsets[1:], SCORED))))
    trial = replace(config, epochs=1, steps_per_epoch=3, patience=None, test=False, tracker=[])
    if few is not None:  # the model in memory is the best one, so that no process looks for another's files
        trial.select_epoch_by = "last"
    with TemporaryDirectory() as folder, _quiet():
        trainer = Trainer(RunFolder(Path(folder) / "run", trial, Splits(splits.train, few, None)))
        try:
            trainer.run()
        except Stopped as stop:
            raise Stopped(stop.number, "the dry run was stopped") from None
        if not trainer.main:
            return ""
        lines = [json.loads(line) for line in trainer.folder.metrics.read_text().splitlines()]
    first, _, last, measured = lines
    size = trainer.batches.batch_size
    trained = 2 * size / (3 * size / last["lists/s"] - size / first["lists/s"])  # per second, after the first step
    scored = few.size / measured["seconds"] if few is not None else math.inf
    run = Batches(splits.train, trainer.usable, config.sampler, config.batch_size, config.steps_per_epoch, config.seed)
    # validation before the first step and after each epoch; test lists at the start, beside validation, and at the end
    times = [(validation, config.epochs + 1), (test, 1 if validation is None else 2)]
    candidates = sum(lists.size * count for lists, count in times if lists is not None)
    training, scoring = (
        timedelta(seconds=round(of)) for of in (config.epochs * run.per_epoch / trained, candidates / scored)
    )
    speed = f"{trained:.3g} lists/s in training"
    if few is not None:
        speed += f", {scored:.3g} documents/s in scoring"
    return "\n".join(
        [
            f"{found}, {config.epochs * run.steps_per_epoch:,} steps over {config.epochs} epochs",
            f"scoring: {candidates:,} candidates in all validations and tests",
            f"measured here: {speed}",
            f"estimate: {training} of training, {scoring} of scoring, {training + scoring} (h:min:s) on this device",
        ]
    )


@contextmanager
def _quiet() -> Iterator[None]:
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
