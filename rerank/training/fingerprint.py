"""The content that decides the result of a training run: its resolved configuration, and hashes of its lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rerank.lists.content import content_hashes
from rerank.lists.data import Splits
from rerank.lists.view import Lists
from rerank.losses.terms import columns_of
from rerank.models.contract import hash_model
from rerank.storage import fingerprint
from rerank.training.config import TrainConfig

NEUTRAL = ("data", "model", "tracker", "checkpoint_every")
"""Settings that change no result, or count by content."""


def resolve(config: TrainConfig, splits: Splits) -> dict[str, Any]:
    """List everything that decides the results of a training run, made of mappings, lists, strings and numbers.

    Lists count by their content, and an initial model by its files, so that folders may be moved.
    """
    return {**resolve_settings(config), "data": resolve_data(config, splits)}


def resolve_settings(config: TrainConfig) -> dict[str, Any]:
    """List the settings that count, without the data."""
    counted = {field.name: getattr(config, field.name) for field in fields(config) if field.name not in NEUTRAL}
    model: dict[str, Any] = fingerprint.resolve(config.model)
    if (folder := getattr(config.model, "folder", None)) is not None:
        model["name"] = hash_model(folder)
    return {**fingerprint.resolve(counted), "model": model}


def resolve_data(config: TrainConfig, splits: Splits) -> dict[str, Any]:
    """Hash the content of the lists, with the columns that the training run reads."""
    columns = config.model.columns
    return {
        "train": content_hashes(splits.train, [*columns, *columns_of(config.loss), *config.sampler.columns]),
        "validation": measured_hashes(splits.validation, columns),
        "test": measured_hashes(splits.test, columns) if config.test else None,
    }


def measured_hashes(lists: Lists | None, columns: Sequence[str]) -> dict[str, str] | None:
    """Hash lists that are measured, with the first stage's scores."""
    if lists is None:
        return None
    return content_hashes(lists, [*columns, *filter(None, [lists.store.order])])
