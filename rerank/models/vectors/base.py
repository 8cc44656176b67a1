"""Base of networks over feature vectors, and their inputs: normalised once, and held in memory or on the GPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch import device as Device

from rerank.errors import UserError
from rerank.features.letor import FEATURES
from rerank.features.normalise import Normaliser, find_normaliser
from rerank.kernels.memory import sent
from rerank.kernels.packing import pack
from rerank.kernels.precision import own_device
from rerank.lists.columns import flat_names
from rerank.lists.view import Lists
from rerank.models.base import Inputs, Model, drawn_from
from rerank.models.folder import WEIGHTS, read_contract, remembered
from rerank.models.scorer import Scorer
from rerank.settings.arguments import class_name
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


class VectorModel(Model):
    """A model that reads feature vectors; the argument ``columns`` of its constructor names them.

    Attributes:
        settings: the constructor's other arguments, which are saved.
        names: the numbers that it reads, by their full names; empty before training.
    """

    def __init__(self) -> None:
        super().__init__()
        self.settings = self.arguments()
        columns = self.settings.pop("columns")
        self.columns = [FEATURES] if columns is None else list(columns)
        self.names: list[str] = []

    def check(self, lists: Lists) -> None:
        vectors(lists.select([]), self.names or columns_of(lists, self.columns))

    def check_trained(self) -> None:
        if not self.names:
            raise UserError(f"model: {type(self).__name__} is not trained; train it first")

    def contract(self) -> dict[str, Any]:
        return {"class": class_name(type(self)), "settings": self.settings, "columns": self.names}


class FeatureNetwork(VectorModel, Scorer):
    """A network over feature vectors, as wide as the lists; subclasses build its layers and score."""

    bf16: ClassVar[bool] = False
    reads: ClassVar[type[FeatureInputs]] = FeatureInputs

    def __init__(self) -> None:
        super().__init__()
        self.normalisers: list[Normaliser] = list(self.settings.pop("normalise") or [])

    @abstractmethod
    def build(self, features: int) -> None:
        """Make the layers for vectors with this many features."""

    @property
    def budget(self) -> int:
        """Default number of documents per forward pass; covers nearly any batch."""
        return 131_072

    def prepare(self, train: Lists, seed: int) -> None:
        self.names = columns_of(train, self.columns)
        if self.normalisers:
            values, offsets = vectors(train, self.names), train.offsets
            check_known(train, self.names, values)
            for number, normaliser in enumerate(self.normalisers):
                normaliser.fit(values, offsets)
                if number + 1 < len(self.normalisers):
                    values = normaliser.apply(values, offsets)
        with drawn_from(seed):
            self.build(len(self.names))

    def inputs(self, lists: Lists) -> FeatureInputs:
        return self.reads(lists, self.normalisers, self.names, next(self.parameters()).device)

    def head_parameters(self) -> set[str]:
        """Return the names of all parameters: there is no pretrained encoder."""
        return {name for name, _ in self.named_parameters()}

    def contract(self) -> dict[str, Any]:
        normalise = [
            {"class": class_name(type(n)), "arguments": n.arguments(), "state": n.state()} for n in self.normalisers
        ]
        return super().contract() | {"normalise": normalise}

    def write(self, folder: Path) -> None:
        save_model(self, str(folder / WEIGHTS))

    @classmethod
    def load(cls, folder: Path) -> Self:
        contract = read_contract(folder)
        normalisers = []
        for entry in contract["normalise"]:
            normaliser = find_normaliser(entry["class"])(**entry["arguments"])
            normaliser.load_state(entry["state"])
            normalisers.append(normaliser)
        model = cls(**contract["settings"] | {"normalise": normalisers or None, "columns": contract["columns"]})
        model.names, model.remembered = contract["columns"], remembered(contract)
        model.build(len(model.names))
        load_model(model, folder / WEIGHTS)
        return model.to(own_device())


_KINDS: tuple[type[nn.Module], ...] = (nn.ReLU, nn.CELU, nn.GELU, nn.Tanh, nn.Sigmoid)
ACTIVATIONS = {kind.__name__.lower(): kind for kind in _KINDS}
