"""What rankers are worth on the lists of one split, query by query, and which rungs stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from rerank.evaluation.measures import Evaluator
from rerank.evaluation.significance import ROUNDING
from rerank.lists.columns import as_name
from rerank.lists.neighbours import query_groups
from rerank.lists.view import Lists
from rerank.models.load import load_model
from rerank.models.mixed import Mixed
from rerank.scoring.shared import scores_by
from rerank.storage.arrow import Array
from rerank.storage.files import digest

TRAININGS, AVERAGES = "trainings/", "averages/"
"""How the names of models begin that are trained here, and of their averages."""

DOCUMENTS = f"{TRAININGS}documents"
"""The model that learned from documents alone."""

FOLDS = 5
"""Folds of the validation queries: what is tuned is worth what it has on queries that it was not tuned on."""

LEVEL = 0.005
"""The chance that a rung stays where none above is better: of twenty such ladders all keep theirs nine times in ten."""

FLIPS, BATCH = 10_000, 1000
"""Draws of signs by which the chance is known, and how many of them are in memory."""


@dataclass(frozen=True)
class Blend:
    """A model's scores, a mix of columns, or both; the model by its name, or its folder within the ladder's."""

    model: str | None = None
    columns: tuple[tuple[str, float], ...] = ()
    text: float = 1.0
    by: Literal["z", "rrf"] = "z"

    @classmethod
    def mix(cls, weights: Iterable[tuple[str, float]], model: str | None = None, text: float = 0.0) -> Blend:
        """A mix in its shortest form: without what has no weight."""
        columns = tuple((name, round(weight, 6)) for name, weight in weights if round(weight, 6))
        text = round(text, 6)
        return cls(model if text else None, columns, text if columns else 1.0)

    def __str__(self) -> str:
        if self.model and not self.columns:
            return self.model.removesuffix("/best")
        if self.by == "rrf":
            return f"reciprocal ranks of {', '.join(name for name, _ in self.columns)}"
        if not self.model and len(self.columns) == 1:
            return self.columns[0][0]
        text = [(self.model.removesuffix("/best"), self.text)] if self.model else []
        return " + ".join(f"{weight:.2g} {name}" for name, weight in [*self.columns, *text])

    @property
    def judged(self) -> bool:
        """Whether judgments of training queries made its model."""
        name = self.model or ""
        return name.startswith((TRAININGS, AVERAGES)) and not name.startswith(f"{DOCUMENTS}/")


class Split:
    """The lists of one split, of which scores of models are kept as columns; no training sees the first ``held``."""

    def __init__(self, folder: Path, name: str, monitor: str, held: int | None = None) -> None:
        self.folder, self.name = folder, name
        self.lists = Lists.open(folder / "lists" / name)
        self.held = np.arange(len(self.lists)) < (len(self.lists) if held is None else held)
        assert self.lists.qrels is not None
        self._evaluator = Evaluator(self.lists.qrels, monitor)
        self._values: dict[Blend, Array] = {}

    def column_of(self, model: str) -> str:
        """The column of a model's scores, which are computed once."""
        name, store = f"{as_name(f'ladder-{model}')[:80]}-{digest(model)[:8]}", self.lists.store
        if name not in store.column_names:
            score = scores_by(load_model(self.place(model), mix=False), "auto", None)
            scores = np.zeros(self.lists.size, np.float32)
            some = self.lists.select(self.held) if Blend(model).judged else self.lists
            scores[: some.size] = score(some, self.name)  # those that are held back are the first ones
            store.add_column(name, scores, made={"model": model})
        return name

    def place(self, model: str) -> str:
        """Where a model is: within the ladder's folder, or wherever its name says."""
        own = self.folder / model
        return str(own) if own.is_dir() else model

    def scores(self, ranker: Blend) -> Array:
        """What ranks the lists, ``[T]`` float32."""
        columns = dict(ranker.columns)
        if ranker.model is not None:
            columns[self.column_of(ranker.model)] = ranker.text
            if not ranker.columns:
                return self.lists.column(self.column_of(ranker.model))
        return Mixed(None, columns, by=ranker.by).mixed(self.lists, None)

    def values(self, ranker: Blend) -> Array:
        """The measure for each query, ``[Q]``; NaN for those whose judgments made the ranker's model."""
        if ranker not in self._values:
            values = self._evaluator(self.lists.run(self.scores(ranker)), str(self.lists.store)).values[0]
            self._values[ranker] = np.where(self.held, values, np.nan) if ranker.judged else values
        return self._values[ranker]

    def best(self, options: Sequence[Blend], queries: Array) -> Blend:
        """The option with the highest mean over some queries, those that all have; of equal ones the first."""
        if any(option.judged for option in options):
            queries = queries & self.held
        return max(options, key=lambda option: float(self.values(option)[queries].mean()))

    def crossed(self, choose: Callable[[Array], Blend]) -> tuple[Blend, Array]:
        """What is chosen on all queries, and values of what is chosen on four fifths for the last fifth, ``[Q]``."""
        values = np.empty(len(self.fold))
        for number in np.unique(self.fold):
            of = self.fold == number
            values[of] = self.values(choose(~of))[of]
        return choose(np.ones(len(values), dtype=bool)), values

    @cached_property
    def fold(self) -> Array:
        groups = query_groups(self.lists, "auto", max(1, len(self.lists) // FOLDS))
        _, group = np.unique(groups, return_inverse=True)
        shuffled = np.random.default_rng(0).permutation(int(group.max()) + 1)
        return shuffled[group] % FOLDS if len(shuffled) > 1 else np.arange(len(group)) % FOLDS


def kept(values: Sequence[Array]) -> list[bool]:
    r"""Which rungs stay, lowest first; the first always does.

    With :math:`t_r` the mean difference of rung :math:`r` from the highest that stays, over its standard error, and
    :math:`p_r` the chance of as much where the differences of each query change their sign at random, the next to stay
    is the lowest above whose :math:`p_r` is one that the smallest :math:`p` of all rungs above falls to one time in
    two hundred, the signs of a query changing for all of them together (Westfall and Young 1993). That is asked again
    until there is none. So many rungs have many chances, some nearly the same, and one that few queries judge, whose
    :math:`t` is large by chance more often, does not raise the bar for the others. Values ``[Q]`` are NaN where a rung
    has learned from the query's judgments, so that two rungs are compared over the queries that neither has seen.
    """
    stays = [True] + [False] * (len(values) - 1)
    highest = 0
    while highest + 1 < len(values):
        above = np.stack(values[highest + 1 :]) - values[highest]
        above[np.abs(above) < ROUNDING] = 0.0  # rounding errors are ties
        better = np.flatnonzero(_chances(above) <= LEVEL)
        if not len(better):
            break
        highest += 1 + int(better[0])
        stays[highest] = True
    return stays


def _chances(difference: Array) -> Array:
    """For each of ``[R, Q]`` differences the chance that noise has one rung as far above, ``[R]``."""
    rng = np.random.default_rng(0)
    signs = (rng.choice(np.array([-1.0, 1.0]), (BATCH, difference.shape[1])) for _ in range(FLIPS // BATCH))
    drawn = np.concatenate([_t(of, difference) for of in signs])
    own = _t(np.ones((1, difference.shape[1])), difference)
    ordered = np.sort(drawn, axis=0) - 1e-9  # rounding errors are ties
    above = [FLIPS - np.searchsorted(ordered[:, r], np.concatenate([own, drawn])[:, r]) for r in range(len(difference))]
    p = np.stack(above, axis=1) / FLIPS
    smallest = np.sort(p[1:].min(axis=1))
    return np.searchsorted(smallest, p[0], side="right") / FLIPS


def _t(signs: Array, difference: Array) -> Array:
    """Means over standard errors, ``[S, R]``, of differences ``[R, Q]`` with signs ``[S, Q]``; 0 where all are 0."""
    known = np.where(np.isnan(difference), 0.0, difference)
    queries = np.maximum(2, (~np.isnan(difference)).sum(axis=1))
    means = signs @ known.T / queries
    variance = np.maximum((known**2).sum(axis=1) / queries - means**2, 1e-12) / (queries - 1)
    return means / np.sqrt(variance)
