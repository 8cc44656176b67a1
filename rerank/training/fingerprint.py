"""The fingerprint of a training: its resolved configuration, and the content of its lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rerank.lists.content import content_hashes
from rerank.lists.data import Splits
from rerank.lists.view import Lists
from rerank.losses.terms import columns_of
from rerank.models.base import Model
from rerank.models.contract import hash_model
from rerank.storage import fingerprint as settings
from rerank.training.config import TrainConfig

NEUTRAL = ("data", "model", "tracker", "checkpoint_every")
"""Settings that change no result, or count by content."""


def fingerprint(config: TrainConfig, splits: Splits) -> str:
    """Return the SHA-256 of everything that decides the results of a training."""
    return settings.fingerprint(resolve(config, splits))


def resolve(config: TrainConfig, splits: Splits) -> dict[str, Any]:
    """List everything that decides the results of a training, made of mappings, lists, strings and numbers.

    Lists count by their content, and an initial model by its files, so that folders may be moved.
    """
    return {**resolve_settings(config), "data": resolve_data(config, splits)}


def resolve_settings(config: TrainConfig) -> dict[str, Any]:
    """List the settings that count, without the data."""
    counted = {field.name: getattr(config, field.name) for field in fields(config) if field.name not in NEUTRAL}
    return {**settings.resolve(counted), "model": _resolve_model(config.model)}


def resolve_data(config: TrainConfig, splits: Splits) -> dict[str, Any]:
    """Hash the content of the lists, with the columns that the training reads."""
    columns = config.model.columns
    return {
        "train": content_hashes(splits.train, [*columns, *columns_of(config.loss), *config.sampler.columns]),
        "validation": measured_hashes(splits.validation, columns),
        "test": measured_hashes(splits.test, columns) if config.test else None,
    }


def _resolve_model(model: Model) -> dict[str, Any]:
    resolved = settings.resolve(model)
    if (folder := getattr(model, "folder", None)) is not None:
        resolved["name"] = hash_model(folder)
    return resolved


def measured_hashes(lists: Lists | None, columns: Sequence[str]) -> dict[str, str] | None:
    """Hash lists that are measured, with the first stage's scores."""
    if lists is None:
        return None
    order = lists.store.order
    return content_hashes(lists, [*columns, *([] if order is None else [order])])
