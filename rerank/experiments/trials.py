"""Trials of an experiment: points of a search, folder names, outcomes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rerank.evaluation.measures import PerQuery
from rerank.settings.parser import Settings
from rerank.storage.files import read_json
from rerank.training.results import Results
from rerank.training.run_folder import ENVIRONMENT, RESULTS

Point = dict[str, Any]
"""Values by dotted key: one combination of a search."""


@dataclass(frozen=True)
class Group:
    """Trials among which validation chooses: a method on a fold with a seed."""

    method: str
    fold: int | str | None
    seed: int

    def __str__(self) -> str:
        fold = "" if self.fold is None else f", fold {self.fold}"
        return f"{self.method}{fold}, seed {self.seed}"


@dataclass(frozen=True)
class Trial:
    """One training run.

    Attributes:
        folder: the run folder; its name depends on the fingerprint and the test lists.
        fingerprint: that of its training; empty until the lists are read, and for rows that are not trained.
    """

    group: Group
    point: Point
    folder: Path
    settings: Settings
    monitor: str
    fingerprint: str = ""

    def __str__(self) -> str:
        return f"{self.group}, {point_name(self.point)}" if self.point else str(self.group)

    def results(self) -> Results | None:
        """Read the results of the training; None if it is not finished."""
        path = self.folder / RESULTS
        return Results.load(path) if path.is_file() else None

    @property
    def seconds(self) -> float:
        """Return the seconds of the training's last start; NaN if unknown."""
        path = self.folder / ENVIRONMENT
        return float(read_json(path).get("seconds", "nan")) if path.is_file() else float("nan")


@dataclass(frozen=True)
class Outcome:
    """A method on a fold with a seed.

    Attributes:
        trial: the trial that validation chose.
        tried: the number of trials that it was chosen from.
        validation: its measures on validation lists.
        test: its measures on test lists.
        seconds: time of the training; NaN if it is unknown.
    """

    trial: Trial
    tried: int
    validation: dict[str, float]
    test: PerQuery
    seconds: float

    @property
    def group(self) -> Group:
        return self.trial.group


@dataclass(frozen=True)
class Failure:
    """A trial that could not be trained or measured, with the last line of its log."""

    trial: Trial
    message: str


def point_name(point: Mapping[str, Any]) -> str:
    """Name a point of a search by the last words of its keys with their values; ``point`` if it has no keys."""
    shown = {key: value.get("class_path", "set") if isinstance(value, dict) else value for key, value in point.items()}
    text = ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in shown.items())
    return file_name(text)[:80] or "point"


def file_name(text: str) -> str:
    """Replace characters that cause trouble in file names."""
    return re.sub(r"[^\w.,=@+-]+", "_", text)
