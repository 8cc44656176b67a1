"""The identity of a training and of a measurement: what decides their results, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rerank.evaluation.measures import Empty, parse_measures
from rerank.features.parse import FEATURES
from rerank.identity import SHOWN, identify
from rerank.lists.split_hashes import split_hashes

if TYPE_CHECKING:
    from rerank.lists.data import Splits
    from rerank.lists.view import Lists
    from rerank.training.config import TrainConfig

TRAINING = 1
"""Revision of the training loops; raised by hand where what they compute changes, not where only rounding does."""

MEASURING = 1
"""Revision of how a model is measured; raised by hand likewise."""

NEUTRAL = ("tracker", "checkpoint_every", "fidelity", "test")
"""Keys of a configuration that cannot change what is trained."""

Identity = dict[str, Any]


def config_identity(config: TrainConfig) -> Identity:
    """What counts of a configuration, without its data: that counts by what it gives."""
    left_out = ("data", *NEUTRAL)
    return {f.name: identify(getattr(config, f.name)) for f in fields(config) if f.name not in left_out}


def data_identity(splits: Splits) -> Identity:
    """Hashes of what a training reads: of its training lists, and of those it validates on."""
    validation = splits.validation
    return {
        "train": split_hashes(splits.train, features_of(splits.train)),
        "validation": None if validation is None else split_hashes(validation, columns_of(validation)),
    }


def training_identity(config: Mapping[str, Any], data: Mapping[str, Any]) -> Identity:
    """What is hashed for the id of a training.

    Args:
        config: what `config_identity` returned.
        data: what `data_identity` returned.
    """
    return {"training": TRAINING, **config, "data": dict(data)}


def measurement_identity(
    subject: Mapping[str, Any], test: Mapping[str, str], measures: str, empty: Empty = "0"
) -> Identity:
    """What is hashed for the id of a measurement.

    Args:
        subject: what is measured, such as ``{"training": ID}`` for the best model of a training.
        test: hashes of the test lists.
        measures: names of measures, separated by spaces.
        empty: what a query without relevant documents scores.
    """
    names = [str(measure) for measure in parse_measures(measures)]
    return {"measuring": MEASURING, **subject, "test": dict(test), "measures": names, "empty": empty}


def run_identity(subject: Mapping[str, Any], test: Mapping[str, str]) -> Identity:
    """What is hashed for the id of a run over test lists: judgments do not change it."""
    read = {name: value for name, value in test.items() if name not in ("grades", "qrels")}
    return {"measuring": MEASURING, **subject, "test": read}


def test_hashes(lists: Lists) -> dict[str, str]:
    """Hashes of what a measurement reads of the test lists."""
    return split_hashes(lists, columns_of(lists))


def columns_of(lists: Lists) -> list[str]:
    """The columns that measuring reads: the features, and the scores that order the lists, which are mixed in."""
    order = lists.store.order
    return features_of(lists) + ([] if order is None else [order])


def features_of(lists: Lists) -> list[str]:
    """The columns that training reads."""
    return [FEATURES] if FEATURES in lists.store.column_names else []


def file_of(measurement: str) -> str:
    """The name of the file with the values per query of a measurement."""
    return f"test-{measurement[:SHOWN]}.json"
