"""Feature vectors in an array, with the sizes of their lists, as lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rerank.errors import UserError
from rerank.features.parse import FEATURES
from rerank.lists.columns import Column, as_column
from rerank.lists.frames import memory_store
from rerank.lists.view import Lists
from rerank.storage.arrow import Array


def as_lists(given: Any, groups: Sequence[int] | None, columns: Sequence[str], names: Sequence[str]) -> Lists:
    """Lists that a model of vectors reads: as they are, or made of an array.

    Args:
        given: lists, or ``[n, F]`` numbers.
        groups: of an array, how many rows each list has, list after list, as LightGBM takes them; None for one list.
        columns: what the model reads, by the names that it was given.
        names: the numbers that it reads, in their order; empty before training.

    Raises:
        UserError: another shape, other numbers of features, or groups that do not add up.
    """
    if isinstance(given, Lists):
        if groups is not None:
            raise UserError("predict: groups are for arrays; lists know their lengths")
        return given
    try:
        features = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"predict: expected lists, or numbers of the shape [n, features] ({error})") from error
    if features.ndim != 2:
        raise UserError(f"predict: expected numbers of the shape [n, features], not {list(features.shape)}")
    lengths = np.array([len(features)] if groups is None else groups, dtype=np.int64).reshape(-1)
    if lengths.sum() != len(features) or (lengths < 0).any():
        raise UserError(f"predict: the groups add up to {lengths.sum()} rows, the array has {len(features)}")
    names = names or _fresh(columns, features.shape[1])
    if features.shape[1] != len(names):
        raise UserError(f"predict: the model reads {len(names)} features, the array has {features.shape[1]}")
    files = [name.partition("/")[0] for name in names]
    numbers = [name.partition("/")[2] or name for name in names]
    made = {}
    for file in dict.fromkeys(files):
        where = [i for i, other in enumerate(files) if other == file]
        made[file] = Column(as_column(file, features[:, where]), tuple(numbers[i] for i in where))
    return Lists.of(memory_store("array", lengths, made))


def _fresh(columns: Sequence[str], width: int) -> list[str]:
    """The numbers that a model reads which was not trained yet."""
    if list(columns) == [FEATURES]:
        return [f"{FEATURES}/{number}" for number in range(1, width + 1)]
    return [name if "/" in name else f"{name}/{name}" for name in columns]


def zeros(lists: Lists) -> Array:
    """A score of 0 for every candidate."""
    return np.zeros(lists.size, dtype=np.float32)
