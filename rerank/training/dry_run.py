"""Cost of a training run: documents or tokens to read, and the time on this device by a measured step."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from rerank.lists.data import Splits
from rerank.lists.view import Lists
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.boosting import Trees
from rerank.progress import duration, log
from rerank.training.batches import Batches
from rerank.training.config import TrainConfig, check_values
from rerank.training.fingerprint import resolve
from rerank.training.fit import as_yaml
from rerank.training.run_folder import RunFolder
from rerank.training.trainer import Trainer

COUNTED = 200
"""Batches whose documents are counted; their mean stands for the others."""

SCORED = 256
"""Candidates at least, unless there are fewer, whose scoring is timed."""


def dry_run(config: TrainConfig, output: str) -> str:
    """Check every input of a training run, and estimate its cost.

    Two steps are made on the real model, of which the second is timed, and some lists are scored twice. Nothing is
    written but the token caches of lists folders.

    Raises:
        UserError: a configuration, lists, a model or an output folder that the run cannot use.
    """
    check_values(config, type(config.loss) if config.loss else None, trees=isinstance(config.model, Trees))
    splits = config.data.splits(config.seed)
    RunFolder(output, resolve(config, splits), "").check()
    train, validation, test = splits.train, splits.validation, splits.test if config.test else None
    if isinstance(config.model, Trees):
        for lists in filter(None, (train, validation, test)):
            config.model.check(lists)
        return f"training: {_listed(train)}; trees read all of them in every round, which is not timed"
    measured = validation or test
    few = measured and measured.select(slice(0, 1 + int(np.searchsorted(measured.offsets[1:], SCORED))))
    trainer, step_seconds, scoring_seconds = _trial(config, train, few)
    unit = "tokens" if isinstance(config.model, CrossEncoder) else "documents"

    def cost(lists: Lists, rows: slice | np.ndarray = slice(None)) -> int:
        return int(trainer.model.inputs(lists).lengths(lists.row_numbers[rows]).sum())

    batches = Batches(train, trainer.usable, config.sampler, config.batch_size, config.steps_per_epoch, config.seed)
    counted, steps = list(islice(batches.epoch(0), COUNTED)), batches.steps_per_epoch * config.epochs
    trained = cost(train, np.concatenate([sample.rows for batch in counted for sample in batch]))
    trained = round(trained * steps / len(counted))
    lines = [f"training: {_listed(train)}, {steps:,} steps over {config.epochs} epochs: {trained:,} {unit}"]
    _, second = trainer.batches.epoch(0)
    step = cost(train, np.concatenate([sample.rows for sample in second]))
    lines.append(f"measured here: a step of {len(second)} lists, {step:,} {unit}, in {step_seconds:.3g} s")
    training, scoring = step_seconds * trained / step, 0.0
    for name, some, times in (("validation", validation, config.epochs + 1), ("test", test, 2 if validation else 1)):
        if some is not None and few is not None:
            scored = times * cost(some)
            lines.append(f"{name}: {_listed(some)}, scored {times} times: {scored:,} {unit}")
            scoring += scoring_seconds * scored / cost(few)
    lines.append(
        f"estimate: {duration(training)} of training, {duration(scoring)} of scoring, "
        f"{(training + scoring) / 3600:.2g} hours on this device"
    )
    return "\n".join(lines)


def _trial(config: TrainConfig, train: Lists, few: Lists | None) -> tuple[Trainer, float, float]:
    """Train for two steps; return the trainer, the seconds of the second step and those of scoring a few lists."""
    trial = replace(config, epochs=1, steps_per_epoch=2, patience=None, select_epoch_by=None, tracker=[])
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with TemporaryDirectory() as folder:
            trainer = Trainer(trial, Splits(train, few, None), RunFolder(Path(folder) / "run", {}, as_yaml(trial)))
            trainer.run()
            lines = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    finally:
        log.setLevel(level)
    first, second = (len(batch) for batch in trainer.batches.epoch(0))
    step = (first + second) / lines[1]["lists/s"] - first / lines[0]["lists/s"]
    return trainer, step, lines[2].get("seconds", 0.0)


def _listed(lists: Lists) -> str:
    return f"{len(lists):,} lists of {lists.size:,} candidates"
