"""The cells of an experiment: points of a search, names of folders, what comes out of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from rerank.evaluation.beside import Beside
from rerank.evaluation.measures import PerQuery
from rerank.retrieval.runs import Run
from rerank.settings.configs import Settings
from rerank.storage.files import digest
from rerank.storage.identity import SHOWN
from rerank.training.run_folder import finished, read_provenance

Point = dict[str, Any]
"""Values by dotted key: what one training of a search tries."""


class Job(StrEnum):
    """What a worker can be asked to do with a cell."""

    TRAIN = "train"
    MEASURE = "measure"


@dataclass(frozen=True)
class Group:
    """The cells among which validation chooses: a method on a fold with a seed."""

    method: str
    fold: int | str | None
    seed: int

    def __str__(self) -> str:
        fold = "" if self.fold is None else f", fold {self.fold}"
        return f"{self.method}{fold}, seed {self.seed}"


@dataclass(frozen=True)
class Cell:
    """One training run."""

    group: Group
    point: Point
    place: Path
    settings: Settings
    monitor: str
    id: str = ""  # of its training; empty while nobody asked for it, and for rows that are not trained

    def __str__(self) -> str:
        return f"{self.group}, {point_name(self.point)}" if self.point else str(self.group)

    @property
    def folder(self) -> Path:
        """The run folder: that of another training has another name."""
        if not self.id:
            return self.place
        return self.place / f"{point_name(self.point)}-{self.id[:SHOWN]}"

    def finished(self) -> dict[str, Any] | None:
        """What ``measures.json`` holds, and ``seconds`` of the last start (NaN: unknown); None if not trained yet."""
        measures, starts = finished(self.folder, self.id), read_provenance(self.folder)
        seconds = float(starts[-1].get("seconds", "nan")) if starts else float("nan")
        return None if measures is None else measures | {"seconds": seconds}


@dataclass(frozen=True)
class Outcome:
    """A method on a fold with a seed."""

    cell: Cell
    tried: int
    validation: dict[str, float]
    test: PerQuery
    seconds: float  # of the training; NaN where nothing tells
    run: Callable[[], Run] = field(default=dict, compare=False)  # of the test lists, read or made when it is asked for
    file: Path | None = None
    start: Beside | None = None  # on validation, beside its model before the first step (of trees: the first stage)

    @property
    def group(self) -> Group:
        return self.cell.group


@dataclass(frozen=True)
class Failure:
    """A cell that could not be trained or measured, with the last line of its log."""

    cell: Cell
    message: str


def point_name(point: Mapping[str, Any]) -> str:
    """A folder's name for a point of a search: the last words of the keys with their values.

    The name of a point without keys is ``point``. Names of different points differ: what a name cannot show (a class
    with arguments, signs that no file name should have) is told apart by a digest.
    """
    if not point:
        return "point"
    whole = json.dumps(point, sort_keys=True)
    last = [key.rpartition(".")[2] for key in point]
    keys = last if len(set(last)) == len(last) else list(point)
    text = ",".join(f"{key}={shown(value)}" for key, value in zip(keys, point.values(), strict=True))
    plain = all(isinstance(value, int | float | bool | None) for value in point.values())
    safe = file_name(text)
    return safe if plain and safe == text and len(safe) <= 100 else f"{safe[:80]}-{digest(whole)[:8]}"


def file_name(text: str) -> str:
    """The text with signs replaced that make trouble in file names."""
    return re.sub(r"[^\w.,=@+-]+", "_", text)


def shown(value: Any) -> str:
    """A value in a word: a class by its name."""
    return str(value.get("class_path", "set")) if isinstance(value, dict) else str(value)
