"""Cost of a training run: documents and tokens to read, and the time on this device by a measured step."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from rerank.lists.data import Splits
from rerank.lists.view import Lists
from rerank.models.base import Model
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.boosting import Trees
from rerank.progress import duration, log
from rerank.scoring.shared import score_shared
from rerank.storage.arrow import Array
from rerank.training.batches import Batches, ListSample
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
    test = splits.test if config.test else None
    if isinstance(config.model, Trees):
        for some in filter(None, (splits.train, splits.validation, test)):
            config.model.check(some)
        return f"training: {_listed(splits.train)}; trees read all of them in every round, which is not timed"
    step, batch, batches, count = _timed_step(config, splits.train)
    unit = "tokens" if isinstance(config.model, CrossEncoder) else "documents"
    parts = _size(config.model, splits.train, batches)
    trained = parts * count / len(batches)
    lines = [f"training: {_listed(splits.train)}, {count:,} steps over {config.epochs} epochs: {_text(trained, unit)}"]
    scored = np.zeros(2)
    for name, lists, times in (("validation", splits.validation, config.epochs + 1), ("test", test, 2)):
        if lists is not None:
            times = 1 if splits.validation is None else times
            whole = times * _size(config.model, lists, [[_whole(lists)]])
            lines.append(f"{name}: {_listed(lists)}, scored {times} times: {_text(whole, unit)}")
            scored += whole
    few = _some(splits.validation or test or splits.train)
    seconds, size = _timed_scoring(config, few), _size(config.model, few, [[_whole(few)]])
    own = _size(config.model, splits.train, [batch])
    lines.append(
        f"measured here: a step of {len(batch)} lists, {_text(own, unit)}, in {step:.3g} s; "
        f"{_text(size, unit)} scored in {seconds:.3g} s"
    )
    training, scoring = step * trained[1] / own[1], seconds * scored[1] / size[1]
    lines.append(
        f"estimate: {duration(training)} of training, {duration(scoring)} of scoring, "
        f"{(training + scoring) / 3600:.2g} hours on this device"
    )
    return "\n".join(lines)


def _timed_step(config: TrainConfig, train: Lists) -> tuple[float, list[ListSample], list[list[ListSample]], int]:
    """Make two steps; return the seconds of the second, its batch, some batches of an epoch and the number of steps."""
    trial = replace(config, epochs=1, steps_per_epoch=2, patience=None, select_epoch_by=None, tracker=[])
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        with TemporaryDirectory() as folder:
            trainer = Trainer(trial, Splits(train, None, None), RunFolder(Path(folder) / "run", {}, as_yaml(trial)))
            trainer.run()
            lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    finally:
        log.setLevel(level)
    usable, sampler, seed = trainer.usable, config.sampler, config.seed
    first, second = Batches(train, usable, sampler, config.batch_size, 2, seed).epoch(0)
    rates = [json.loads(line)["lists/s"] for line in lines[:2]]
    seconds = (len(first) + len(second)) / rates[1] - len(first) / rates[0]
    batches = Batches(train, usable, sampler, config.batch_size, config.steps_per_epoch, seed)
    return seconds, second, list(islice(batches.epoch(0), COUNTED)), batches.steps_per_epoch * config.epochs


def _timed_scoring(config: TrainConfig, lists: Lists) -> float:
    """Score lists twice; return the seconds of the second time."""
    precision = "auto" if config.precision == "fp16" else config.precision
    score_shared(config.model, lists, precision=precision, budget=config.token_budget)
    started = time.perf_counter()
    score_shared(config.model, lists, precision=precision, budget=config.token_budget)
    return time.perf_counter() - started


def _some(lists: Lists) -> Lists:
    """Take the first lists with enough candidates to time."""
    return lists.select(slice(0, 1 + int(np.searchsorted(lists.offsets[1:], SCORED))))


def _whole(lists: Lists) -> ListSample:
    return ListSample(0, np.arange(lists.size), 0)


def _size(model: Model, lists: Lists, batches: Sequence[Sequence[ListSample]]) -> Array:
    """Count the documents and the tokens of batches, ``[2]``; a feature vector counts as one token."""
    rows = np.concatenate([sample.rows for batch in batches for sample in batch])
    tokens = len(rows)
    if isinstance(model, CrossEncoder):
        tokens = int(model.inputs(lists).lengths(lists.row_numbers[rows]).sum())
    return np.array([len(rows), tokens], dtype=float)


def _listed(lists: Lists) -> str:
    return f"{len(lists):,} lists of {lists.size:,} candidates"


def _text(size: Array, unit: str) -> str:
    documents, tokens = size
    return f"{documents:,.0f} documents" + (f" with {tokens:,.0f} tokens" if unit == "tokens" else "")
