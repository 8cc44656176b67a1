"""What gradient-boosted trees of every library share: growing tree by tree, scoring, saving, loading."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from rerank.errors import NotFoundError, UserError, needed
from rerank.features.svmlight import FEATURES
from rerank.lists.view import Lists
from rerank.models.base import Model
from rerank.models.columns import check_added, warn_of_added
from rerank.models.contract import CONTRACT, class_name, read_contract, write_contract
from rerank.models.vectors.inputs import as_lists, check_columns, columns_of, vectors
from rerank.storage.arrow import Array

Objective = Callable[["Array"], tuple["Array", "Array"]]
"""Gradient and diagonal of the Hessian, ``[T]`` each, at the scores ``[T]`` of the training documents."""

Split = Literal["train", "validation"]

Gain = Literal["log2", "exp-log2"]


class Trees(Model):
    """An ensemble of regression trees, grown one by one: :meth:`begin`, :meth:`grow` again and again, :meth:`keep`.

    The score of a document is the sum of its leaves' values, without any offset: before the first tree every score is
    0. Features are taken as they are, since trees only compare them. Scores are float32.
    """

    package: ClassVar[str]
    file: ClassVar[str]
    smallest_leaf: ClassVar[str]
    """The keys that say how small a leaf may be."""

    def __init__(self, settings: dict[str, Any]) -> None:
        columns = settings.pop("columns")
        self.columns = [FEATURES] if columns is None else list(columns)
        self.settings = settings
        self.trees: int = settings["trees"]
        self.names: list[str] = []
        self.booster: Any = None
        self.module: Any = needed(f"model: {type(self).__name__}", self.package, "ltr")

    def vectors(self, lists: Lists) -> Array:
        """What the trees read of the candidates, ``[T, C]``; NaN where a system did not return one."""
        return vectors(lists, self.names)

    def prepare(self, train: Lists) -> None:
        self.names = columns_of(train, self.columns)
        check_added(train, self.names)
        warn_of_added(train, self.names)

    def check(self, lists: Lists) -> None:
        check_columns(lists, self.names, self.columns)

    @abstractmethod
    def begin(self, train: Lists, validation: Lists | None, seed: int, gain: Gain, own: bool) -> None:
        """Bin the features and start without a tree."""

    @abstractmethod
    def grow(self, objective: Objective | None) -> bool:
        """Add a tree; returns whether there was something to split."""

    @abstractmethod
    def scores(self, split: Split) -> Array:
        """Scores of a split's documents by all trees so far, ``[T]``."""

    @abstractmethod
    def keep(self, trees: int) -> None:
        """Drop the trees after the first ``trees``, and the training data."""

    @abstractmethod
    def _predict(self, features: Array) -> Array:
        """Scores of feature vectors ``[n, F]``."""

    @abstractmethod
    def _read(self, path: Path) -> None:
        """Read trees in the library's own format."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of trees."""

    def untrained(self) -> str:
        return "" if self.booster is not None else f"{type(self).__name__}: has no trees, so that all scores are 0"

    def predict(self, lists: Any, groups: Sequence[int] | None = None) -> Array:
        """Scores of every candidate, ``[n]`` float32, in their order; 0 before the first tree.

        Args:
            lists: lists; or an array ``[n, F]`` of the features in the order in which the model reads them.
            groups: of an array, how many rows each list has; None for one list.

        Raises:
            UserError: lists that lack what the model reads, or an array of another shape.
        """
        given = as_lists(lists, groups, self.columns, self.names)
        if self.booster is None:
            self.warn_if_untrained()
            columns_of(given, self.columns)
            return np.zeros(given.size, dtype=np.float32)
        return np.asarray(self._predict(vectors(given, self.names)), dtype=np.float32)

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
        path = folder / cls.file
        if not path.is_file():
            raise NotFoundError(f"{path}: no such file; train again")
        try:
            names = [str(name) for name in contract["columns"]]
            model = cls(**contract["settings"] | {"columns": names})
            model.names = names
        except UserError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{folder / CONTRACT}: not a whole contract ({error}); train again") from error
        model._read(path)
        return model

    def _params(self, *others: str) -> dict[str, Any]:
        """The settings that go to the library under their own names: all but the others."""
        return {name: value for name, value in self.settings.items() if name not in others}

    def _threads(self, rows: int) -> int:
        """How many threads work on so many documents.

        Without a setting one for every 50,000: on fewer the threads wait for each other longer than they work, and
        where other programs keep the cores busy they wait a hundred times longer than one thread takes.
        """
        if self.settings["threads"] is not None:
            return int(self.settings["threads"])
        cores = int(os.environ.get("OMP_NUM_THREADS", "").split(",")[0] or os.cpu_count() or 1)
        return max(1, min(cores, rows // 50_000))
