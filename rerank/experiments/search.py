"""Which points of a search are tried: all of a grid, or what Optuna suggests; and what they are called."""

from __future__ import annotations

import itertools
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from rerank.errors import UserError, nearest
from rerank.storage.files import digest

Point = dict[str, Any]
"""Values by dotted key."""


class PointSearch(ABC):
    """Points to try, asked for as results come in."""

    size: int
    """Number of points in all."""

    @abstractmethod
    def ask(self) -> list[Point]:
        """The points that may be tried now, each once; none while results are waited for, and none at the end."""

    @abstractmethod
    def tell(self, point: Point, value: float | None) -> None:
        """What a point reached on validation (the more the better); None where it failed."""


class Grid(PointSearch):
    """Every combination of the values."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        combinations = itertools.product(*space.values())
        self._points = [dict(zip(space, combination, strict=True)) for combination in combinations]
        self.size = len(self._points)

    def ask(self) -> list[Point]:
        points, self._points = self._points, []
        return points

    def tell(self, point: Point, value: float | None) -> None: ...


class Optuna(PointSearch):
    """Points suggested by the tree-structured Parzen estimator, one at a time.

    Each depends on the seed and on what the ones before reached and on nothing else, so that an interrupted search
    takes the same way again.
    """

    def __init__(self, space: Mapping[str, Any], trials: int, seed: int) -> None:
        try:
            import optuna
        except ImportError as error:
            raise UserError("trials: needs Optuna; pip install 'rerank-direct[ltr]'") from error
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space, self.size, self._left = space, trials, trials
        self._study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        self._trial: Any = None

    def ask(self) -> list[Point]:
        if self._trial is not None or not self._left:
            return []
        self._left -= 1
        self._trial = self._study.ask()
        return [{key: self._suggest(key, options) for key, options in self._space.items()}]

    def tell(self, point: Point, value: float | None) -> None:
        from optuna.trial import TrialState

        if value is None:
            self._study.tell(self._trial, state=TrialState.FAIL)
        else:
            self._study.tell(self._trial, value)
        self._trial = None

    def _suggest(self, key: str, options: Any) -> Any:
        if isinstance(options, list):
            return options[self._trial.suggest_categorical(key, list(range(len(options))))]
        low, high, log = options["low"], options["high"], options.get("log", False)
        whole = isinstance(low, int) and isinstance(high, int)
        suggest = self._trial.suggest_int if whole else self._trial.suggest_float
        return suggest(key, low, high, log=log)


def make_search(space: Mapping[str, Any], trials: int | None, seed: int) -> PointSearch:
    """A full grid, or Optuna where the grid has more than ``trials`` points or a range is given."""
    ranges = any(isinstance(options, dict) for options in space.values())
    if trials is None or not (ranges or math.prod(map(len, space.values())) > trials):
        return Grid(space)
    return Optuna(space, trials, seed)


def check_space(name: str, space: Mapping[str, Any], trials: int | None) -> None:
    """Raise a UserError for a search that is not one."""
    if trials is not None and trials < 1:
        raise UserError(f"trials: must be at least 1, not {trials}")
    for key, options in space.items():
        where = f"methods.{name}.search.{key}"
        if isinstance(options, list) and options:
            continue
        if not isinstance(options, dict) or not {"low", "high"} <= options.keys():
            raise UserError(f"{where}: must be a list of values or a range {{low: 0.1, high: 10}}, not {options!r}")
        for word in options:
            if word not in ("low", "high", "log"):
                raise UserError(f"{where}: no such word {word!r}{nearest(word, ('low', 'high', 'log'))}")
        low, high, log = options["low"], options["high"], options.get("log", False)
        numbers = all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in (low, high))
        if not numbers or not isinstance(log, bool) or low > high or (log and low <= 0):
            raise UserError(f"{where}: {options!r} is not a range; low must not be above high, and above 0 if log")
        if trials is None:
            raise UserError(f"{where}: a range needs a number of trials; set trials")


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
