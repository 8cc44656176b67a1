"""Feature vectors of lists or arrays; for networks normalised once, held in memory (or on the GPU), taken by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch import device as Device

from rerank.errors import UserError
from rerank.features.normalise import Normaliser
from rerank.features.svmlight import FEATURES
from rerank.kernels.memory import sent
from rerank.kernels.packing import pack
from rerank.lists.columns import Column, as_column, flat_names
from rerank.lists.store import memory_store
from rerank.lists.view import Lists
from rerank.models.base import Inputs
from rerank.storage.arrow import Array, blocks, ranges

ROWS = 65_536
"""Rows normalised at a time."""


def columns_of(lists: Lists, columns: Sequence[str]) -> list[str]:
    """The numbers that a model reads of every candidate, by their full names (``features/1``)."""
    store = lists.store
    if FEATURES in columns and FEATURES not in store.column_names:
        there = ", ".join(store.column_names) or "no columns"
        holds = "holds texts, not feature vectors; use a CrossEncoder, or" if store.has_text else "has no features;"
        raise UserError(f"{lists.store}: {holds} name columns to read (model.columns), there are {there}")
    if not columns:
        raise UserError(f"model.columns: is empty; name some of {', '.join(store.column_names)}, or leave it out")
    return list(flat_names(columns, {file: store.entry(file) for file in {name.partition("/")[0] for name in columns}}))


def vectors(lists: Lists, names: Sequence[str]) -> Array:
    """What a model reads of the candidates, ``[T, C]``; a view of the mapped file where it can be."""
    try:
        return lists.matrix(names)
    except UserError as error:
        shown = ", ".join(names) if len(names) < 5 else f"{names[0]}, {names[1]}, … {names[-1]}"
        raise UserError(f"{lists.store}: the model reads {shown}; {error}") from error


def check_columns(lists: Lists, names: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse lists without the numbers that a model reads: ``names``, empty before training, of ``columns``."""
    vectors(lists.select([]), names or columns_of(lists, columns))


def as_lists(given: Any, groups: Sequence[int] | None, columns: Sequence[str], names: Sequence[str]) -> Lists:
    """Lists that a model of vectors reads: as they are, or made of an array ``[n, F]``, cut into ``groups`` of rows.

    The model reads ``columns``; ``names`` are their numbers, empty before training.
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


class FeatureInputs(Inputs):
    """The vectors of some lists as one tensor ``[T, F]``."""

    def __init__(self, lists: Lists, normalisers: Sequence[Normaliser], names: Sequence[str], device: Device) -> None:
        vectors(lists.select([]), names)  # lists without candidates are refused as well
        values = np.empty((lists.size, len(names)), dtype=np.float32)
        for first, last in blocks(lists.offsets, ROWS):
            start, end = int(lists.offsets[first]), int(lists.offsets[last])
            block = vectors(lists.select(np.arange(first, last)), names)
            check_known(lists, names, block)
            offsets = lists.offsets[first : last + 1] - start
            for normaliser in normalisers:
                block = normaliser.apply(block, offsets)
            values[start:end] = block
        self.values = torch.from_numpy(values).to(device)
        self._place = np.full(int(lists.row_numbers.max(initial=-1)) + 1, -1)  # row in the store -> row here
        self._place[lists.row_numbers] = np.arange(lists.size)

    def to(self, device: Device) -> None:
        self.values = self.values.to(device)

    def lengths(self, rows: Array) -> Array:
        return np.ones(len(rows), dtype=np.int64)

    def collate(self, rows: Array, starts: Array) -> dict[str, Tensor]:
        """``features``: ``[n, F]``."""
        here = torch.from_numpy(self._place[rows])
        return {"features": self.values.index_select(0, sent(here, self.values.device))}


def check_known(lists: Lists, names: Sequence[str], values: Array) -> None:
    """Refuse candidates of which a system says nothing: a network has no way to read that."""
    if (unknown := np.isnan(values)).any():
        column = int(unknown.any(axis=0).argmax())
        raise UserError(
            f"{lists.store}: {names[column]} has no value for {int(unknown[:, column].sum())} candidates (they were "
            "added, or that system did not return them); leave the column out, or use trees, which can tell"
        )


class ListInputs(FeatureInputs):
    """The same for models that look at the whole list."""

    by_list = True

    def chunks(self, rows: Array, starts: Array, budget: int) -> list[Array]:
        """Whole lists, of similar length."""
        lengths = np.diff(starts, append=len(rows))
        return [ranges(starts[chosen], lengths[chosen]) for chosen in pack(lengths, budget)]

    def collate(self, rows: Array, starts: Array) -> dict[str, Tensor]:
        """``features`` ``[B, N, F]`` padded with zeros, ``mask`` ``[B, N]``, and its real places, ``cells`` ``[n]``."""
        lengths = np.diff(starts, append=len(rows))
        flat = super().collate(rows, starts)["features"]
        real = np.arange(int(lengths.max())) < lengths[:, None]
        mask, cells = (sent(torch.from_numpy(value), flat.device) for value in (real, np.flatnonzero(real)))
        padded = flat.new_zeros(real.size, flat.shape[1]).index_copy_(0, cells, flat)
        return {"features": padded.unflatten(0, real.shape), "mask": mask, "cells": cells}
