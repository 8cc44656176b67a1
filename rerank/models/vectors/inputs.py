"""Feature vectors of lists or arrays; for networks they are normalised once and held in memory, or on the GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch import device as Device

from rerank.errors import UserError
from rerank.features.normalise import Normaliser
from rerank.features.svmlight import FEATURES
from rerank.kernels.memory import sent
from rerank.kernels.packing import pack
from rerank.lists.columns import flat_names
from rerank.lists.view import Lists
from rerank.models.base import Inputs
from rerank.storage.arrow import Array, blocks, ranges

ROWS = 65_536
"""Rows normalised at a time."""


def columns_of(lists: Lists, columns: Sequence[str]) -> list[str]:
    """List the numbers that a model reads of every candidate, by their full names (``features/1``)."""
    store = lists.store
    if FEATURES in columns and FEATURES not in store.column_names:
        there = ", ".join(store.column_names) or "no columns"
        holds = "holds texts, not feature vectors; use a CrossEncoder, or" if store.has_text else "has no features;"
        raise UserError(f"{lists.store}: {holds} name columns to read (model.columns), there are {there}")
    if not columns:
        raise UserError(f"model.columns: empty; name some of {', '.join(store.column_names)}, or leave it out")
    return list(flat_names(columns, {file: store.entry(file) for file in {name.partition("/")[0] for name in columns}}))


def vectors(lists: Lists, names: Sequence[str]) -> Array:
    """Read the numbers of all candidates, ``[T, C]``; a view of the mapped file if possible."""
    try:
        return lists.matrix(names)
    except UserError as error:
        shown = ", ".join(names) if len(names) < 5 else f"{names[0]}, {names[1]}, … {names[-1]}"
        raise UserError(f"{lists.store}: the model reads {shown}; {error}") from error


def check_columns(lists: Lists, names: Sequence[str], columns: Sequence[str]) -> None:
    """Validate that lists have the numbers that a model reads: ``names``, empty before training, of ``columns``."""
    vectors(lists.select([]), names or columns_of(lists, columns))


class FeatureInputs(Inputs):
    """The vectors of some lists as one tensor ``[T, F]``."""

    def __init__(self, lists: Lists, normalisers: Sequence[Normaliser], names: Sequence[str], device: Device) -> None:
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
        """Return ``features`` ``[n, F]``."""
        here = torch.from_numpy(self._place[rows])
        return {"features": self.values.index_select(0, sent(here, self.values.device))}


def check_known(lists: Lists, names: Sequence[str], values: Array) -> None:
    """Validate that every candidate has all values: a network cannot read NaN."""
    if (unknown := np.isnan(values)).any():
        column = int(unknown.any(axis=0).argmax())
        raise UserError(
            f"{lists.store}: {names[column]} has no value for {int(unknown[:, column].sum())} candidates (they were "
            "added, or that system did not return them); leave the column out, or use trees, which can tell"
        )


class ListInputs(FeatureInputs):
    """Inputs of models that read whole lists."""

    listwise = True

    def chunks(self, rows: Array, starts: Array, budget: int) -> list[Array]:
        """Pack whole lists of similar length."""
        lengths = np.diff(starts, append=len(rows))
        return [ranges(starts[chosen], lengths[chosen]) for chosen in pack(lengths, budget)]

    def collate(self, rows: Array, starts: Array) -> dict[str, Tensor]:
        """Return padded ``features`` ``[B, N, F]``, ``mask`` ``[B, N]``, and its true places, ``cells`` ``[n]``."""
        lengths = np.diff(starts, append=len(rows))
        flat = super().collate(rows, starts)["features"]
        real = np.arange(int(lengths.max())) < lengths[:, None]
        mask, cells = (sent(torch.from_numpy(value), flat.device) for value in (real, np.flatnonzero(real)))
        padded = flat.new_zeros(real.size, flat.shape[1]).index_copy_(0, cells, flat)
        return {"features": padded.unflatten(0, real.shape), "mask": mask, "cells": cells}
