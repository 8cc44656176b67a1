"""The identity of a training and of a measurement: what decides their results, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from rerank.evaluation.measures import Empty, parse_measures
from rerank.lists.content import content_hashes
from rerank.lists.data import Splits
from rerank.lists.view import Lists
from rerank.losses.terms import columns_of
from rerank.models.contract import hash_model
from rerank.storage.identity import SHOWN, identify
from rerank.training.config import TrainConfig

TRAINING = 1
"""Revision of the training loops; raised by hand where what they compute changes, not where only rounding does."""

MEASURING = 1
"""Revision of how a model is measured; raised by hand likewise."""

NEUTRAL = ("tracker", "checkpoint_every", "test")
"""Keys of a configuration that cannot change what is trained."""

Identity = dict[str, Any]


def config_identity(config: TrainConfig) -> Identity:
    """List the settings that count, without the data; an initial model counts by its files, so that it may be moved."""
    left_out = ("data", *NEUTRAL)
    settings = {f.name: getattr(config, f.name) for f in fields(config) if f.name not in left_out}
    identity = {name: identify(value) for name, value in settings.items() if value is not None}
    if (folder := getattr(config.model, "folder", None)) is not None:
        identity["model"]["name"] = hash_model(folder)
    return identity


def data_identity(splits: Splits, columns: Sequence[str], targets: Sequence[str] = ()) -> Identity:
    """Hashes of what a training reads: of its training lists, and of those it validates on."""
    validation = splits.validation
    return {
        "train": content_hashes(splits.train, list(dict.fromkeys([*columns, *targets]))),
        "validation": None if validation is None else measured_hashes(validation, columns),
    }


def training_identity(config: Mapping[str, Any], data: Mapping[str, Any]) -> Identity:
    """What is hashed for the id of a training."""
    return {"training": TRAINING, **config, "data": dict(data)}


def identity_of(config: TrainConfig, splits: Splits) -> Identity:
    """What is hashed for the id of a training, from the configuration and its lists."""
    read = data_identity(splits, config.model.columns, taught_by(config))
    return training_identity(config_identity(config), read)


def taught_by(config: TrainConfig) -> list[str]:
    """The columns that losses learn from, and that samplers choose by."""
    return [*columns_of(config.loss), *config.sampler.columns]


def measurement_identity(
    subject: Mapping[str, Any], test: Mapping[str, str], measures: str, empty: Empty = "0"
) -> Identity:
    """What is hashed for the id of a measurement."""
    names = [str(measure) for measure in parse_measures(measures)]
    return {"measuring": MEASURING, **subject, "test": dict(test), "measures": names, "empty": empty}


def run_identity(subject: Mapping[str, Any], test: Mapping[str, str]) -> Identity:
    """What is hashed for the id of a run over test lists: judgments do not change it."""
    read = {name: value for name, value in test.items() if name != "labels"}
    return {"measuring": MEASURING, **subject, "test": read}


def measured_hashes(lists: Lists, columns: Sequence[str]) -> dict[str, str]:
    """Hashes of what a measurement reads of lists: also the scores that order them, which are mixed in."""
    order = lists.store.order
    return content_hashes(lists, list(dict.fromkeys([*columns, *([] if order is None else [order])])))


def file_of(measurement: str) -> str:
    """The name of the file with the values per query of a measurement."""
    return f"test-{measurement[:SHOWN]}.json"
