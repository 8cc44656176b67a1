"""Base of gradient-boosted trees: training tree by tree, scoring, saving, loading."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from rerank.errors import UserError, needed
from rerank.features.svmlight import FEATURES
from rerank.lists.view import Lists
from rerank.models.base import Model, check_lists
from rerank.models.columns import check_added
from rerank.models.contract import class_name, read_contract, write_contract
from rerank.models.vectors.inputs import check_columns, columns_of, vectors
from rerank.storage.arrow import Array

Objective = Callable[["Array"], tuple["Array", "Array"]]
"""Gradient and diagonal of the Hessian, ``[T]`` each, at the scores ``[T]`` of the training documents."""

Split = Literal["train", "validation"]

Gain = Literal["log2", "exp-log2"]


class Trees(Model):
    """An ensemble of regression trees, trained one by one: :meth:`begin`, :meth:`grow` for each tree, :meth:`keep`.

    The score of a document is the sum of its leaves' values, without any offset: before the first tree every score is
    0. Features are taken as they are, since trees only compare them. Scores are float32.
    """

    package: ClassVar[str]
    file: ClassVar[str]
    smallest_leaf: ClassVar[str]
    """Keys of the configuration that limit the size of a leaf."""

    def __init__(self, settings: dict[str, Any]) -> None:
        columns = settings.pop("columns")
        self.columns = [FEATURES] if columns is None else list(columns)
        self.settings = settings
        self.trees: int = settings["trees"]
        self.names: list[str] = []
        self.booster: Any = None
        self.module: Any = needed(f"model: {type(self).__name__}", self.package, "ltr")

    def vectors(self, lists: Lists) -> Array:
        """Read the features of all candidates, ``[T, C]``; NaN if a system did not return one."""
        return vectors(lists, self.names)

    def prepare(self, train: Lists) -> None:
        self.names = columns_of(train, self.columns)
        check_added(train, self.names)

    def check(self, lists: Lists) -> None:
        check_columns(lists, self.names, self.columns)

    @abstractmethod
    def begin(self, train: Lists, validation: Lists | None, seed: int, gain: Gain, own: bool) -> None:
        """Bin the features and start without a tree; ``own`` if the loss is one of ours."""

    @abstractmethod
    def grow(self, objective: Objective | None) -> bool:
        """Add a tree; return False if there was nothing to split."""

    @abstractmethod
    def scores(self, split: Split) -> Array:
        """Return the scores of a split's documents with all trees so far, ``[T]``."""

    @abstractmethod
    def keep(self, trees: int) -> None:
        """Drop the trees after the first ``trees``, and the training data."""

    @abstractmethod
    def _predict(self, features: Array) -> Array:
        """Score feature vectors ``[n, F]``."""

    @abstractmethod
    def _read(self, path: Path) -> None:
        """Read trees in the library's own format."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of trees."""

    def untrained(self) -> str:
        return "" if self.booster is not None else f"{type(self).__name__} is not trained"

    def predict(self, lists: Lists) -> Array:
        """Score every candidate: ``[n]`` float32, in their order.

        Raises:
            UserError: the model is not trained, or lists lack what it reads.
        """
        check_lists(lists)
        if self.untrained():
            raise UserError(f"predict: {self.untrained()}; train it first")
        return np.asarray(self._predict(self.vectors(lists)), dtype=np.float32)

    def contract(self) -> dict[str, Any]:
        return {"class": class_name(type(self)), "settings": self.settings, "columns": self.names, "trees": self.count}

    def save(self, folder: str | Path) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.booster.save_model(folder / self.file)
        write_contract(folder, {**self.contract(), **self.remembered})

    @classmethod
    def load(cls, folder: Path) -> Self:
        contract = read_contract(folder)
        model = cls(**contract["settings"] | {"columns": contract["columns"]})
        model.names = contract["columns"]
        model._read(folder / cls.file)
        return model

    def _params(self, *others: str) -> dict[str, Any]:
        """Select the settings that go to the library under their own names: all but the others."""
        own = {name: value for name, value in self.settings.items() if name not in ("params", *others)}
        return own | (self.settings["params"] or {})

    def _threads(self, rows: int) -> int:
        """Choose the number of threads for a number of documents.

        Without a setting it is one for every 50,000: with fewer documents threads wait for each other longer than they
        work, and if other programs keep the cores busy they wait a hundred times longer than one thread takes.
        """
        if self.settings["threads"] is not None:
            return int(self.settings["threads"])
        cores = int(os.environ.get("OMP_NUM_THREADS", "").split(",")[0] or os.cpu_count() or 1)
        return max(1, min(cores, rows // 50_000))
