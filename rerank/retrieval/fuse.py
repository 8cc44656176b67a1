"""Fuse rankings: unions, reciprocal rank fusion, and weighted sums of z-normalised scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rerank.errors import UserError, nearest
from rerank.retrieval.runs import Run, Scored, as_float32
from rerank.storage.arrow import Array

K = 60
"""RRF's constant, as Cormack, Clarke and Büttcher (SIGIR 2009) chose it."""

RRF = "rrf"
"""The name of the column of fused reciprocal ranks."""


def reciprocal_ranks(rankings: Sequence[Sequence[str]], k: int = K) -> list[Scored]:
    r"""Reciprocal rank fusion, :math:`\sum_r 1 / (k + \text{rank}_r(d))` over the rankings that have the document.

    Returns:
        The union, in descending order of score as float32; ties stay in the order of the first ranking, then of what
        the second adds, and so on. The sums are exact to the last bit, whatever the order of the rankings.
    """
    terms: dict[str, list[float]] = {}
    for ranking in rankings:
        for rank, id in enumerate(ranking, 1):
            terms.setdefault(id, []).append(1 / (k + rank))
    ids, scores = list(terms), list(map(math.fsum, terms.values()))
    return [Scored(ids[i], scores[i]) for i in np.argsort(-as_float32(scores), kind="stable").tolist()]


@dataclass(frozen=True)
class Pool:
    """The best candidates of several runs together, query by query, with every run's scores.

    Scores are kept as they are, equal ones too: the order of the candidates tells how the run that orders them breaks
    its ties, and ties of the other columns are broken as trec_eval does (see :func:`rerank.retrieval.runs.best_first`).

    Args:
        runs: runs by name; they are not copied.
        order: the column that orders the candidates: a run's name, or ``rrf``. Those that the run lacks come last, in
            the order of their RRF. None takes ``rrf``, or the only run there is.
        selves: queries that are documents; the document of the query's id is left out of its candidates.

    Raises:
        UserError: no such order, or a run that is called ``rrf``.
    """

    runs: Mapping[str, Run]
    order: str | None = None
    selves: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if len(self.runs) > 1 and RRF in self.runs:
            raise UserError(f"a run is called {RRF!r}, as the column of the fused ranks; choose another name")
        if self.order is not None and self.order not in self.columns:
            there = f"the columns are {', '.join(self.columns)}"
            raise UserError(f"order: no column {self.order!r}{nearest(self.order, self.columns)}; {there}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The runs' names, and ``rrf`` after them if there are several."""
        return (*self.runs, RRF) if len(self.runs) > 1 else tuple(self.runs)

    @property
    def ordered_by(self) -> str:
        return self.order or self.columns[-1]

    def candidates(self, query: str, depth: int) -> tuple[list[str], Array]:
        """Return document ids, best first, and ``[n, columns]`` scores; NaN if a run lacks the document."""
        best = [self._best(run, query, depth) for run in self.runs.values()]
        if len(best) == 1:
            return [scored.id for scored in best[0]], np.array([[scored.score] for scored in best[0]]).reshape(-1, 1)
        fused = reciprocal_ranks([[scored.id for scored in ranking] for ranking in best])
        rows = {scored.id: row for row, scored in enumerate(fused)}
        scores = np.full((len(fused), len(self.columns)), np.nan)
        for column, ranking in enumerate(best):
            scores[[rows[scored.id] for scored in ranking], column] = [scored.score for scored in ranking]
        scores[:, -1] = [scored.score for scored in fused]
        ids = [scored.id for scored in fused]
        if self.ordered_by == RRF:
            return ids, scores
        first = [rows[scored.id] for scored in best[self.columns.index(self.ordered_by)]]
        order = list(dict.fromkeys([*first, *range(len(ids))]))
        return [ids[row] for row in order], scores[order]

    def _best(self, run: Run, query: str, depth: int) -> list[Scored]:
        if query not in self.selves:
            return list(run.get(query, ())[:depth])
        return [scored for scored in run.get(query, ())[: depth + 1] if scored.id != query][:depth]

    def ranking(self, query: str, depth: int) -> list[Scored]:
        """Return the candidates of the column that orders them, best first."""
        if self.ordered_by in self.runs:
            return self._best(self.runs[self.ordered_by], query, depth)
        ids, scores = self.candidates(query, depth)
        return list(map(Scored, ids, scores[:, -1].tolist()))


def z_of_candidates(numbers: Array) -> Array:
    """Normalise the scores of a list to z; a missing one (NaN) gets the lowest z of the others.

    Candidates without a number count neither for the mean nor for the deviation; where none has one, all z are 0.
    """
    values = as_float32(numbers).astype(np.float64)
    known = values[~np.isnan(values)]
    # Equal scores can have a mean that is off by a rounding error: their range is 0, their deviation may not be.
    if not len(known) or np.ptp(known) == 0:
        return np.zeros(len(values))
    return (np.where(np.isnan(values), known.min(), values) - known.mean()) / known.std()


Aligned = dict[str, tuple[list[str], list[Array]]]
"""Query id -> the union of the runs' documents, and ``[runs, documents]`` their z."""


def align(runs: Sequence[Run]) -> Aligned:
    """Align runs, each z-normalised over its own documents, to sum them with any weights.

    A document that a run lacks gets the run's lowest z; of a query that a run lacks, all documents get 0.
    """
    queries = {}
    for query in dict.fromkeys(query for run in runs for query in run):
        scores = [dict(run.get(query, ())) for run in runs]
        documents = list(dict.fromkeys(id for known in scores for id in known))
        numbers = [np.array([known.get(document, math.nan) for document in documents]) for known in scores]
        queries[query] = documents, [z_of_candidates(values) for values in numbers]
    return queries


def weighted_sum(aligned: Aligned, weights: Sequence[float], divisor: float = 1) -> dict[str, list[Scored]]:
    """Rank each query's documents by the weighted sum of their z, over a divisor.

    Ties stay in the order of the first run, then of what the second adds, and so on.
    """
    fused = {}
    for query, (documents, zs) in aligned.items():
        total = sum((weight * z for weight, z in zip(weights, zs, strict=True)), start=np.zeros(len(documents)))
        scores = total / divisor
        order = np.argsort(-scores.astype(np.float32), kind="stable").tolist()
        fused[query] = [Scored(documents[i], float(scores[i])) for i in order]
    return fused


def fuse(runs: Sequence[Run], weights: Sequence[float] | None = None) -> dict[str, list[Scored]]:
    r"""Per query :math:`\sum_r w_r \, z(s_r)` over the union of the runs' documents.

    Each run is z-normalised over its own documents; see :func:`align` for what it lacks.

    >>> first, second = {"q": [Scored("a", 3.0), Scored("b", 1.0)]}, {"q": [Scored("b", 9.0), Scored("a", 7.0)]}
    >>> fuse([first, second], [0.75, 0.25])["q"]  # z is 1 and -1 in both
    [Scored(id='a', score=0.5), Scored(id='b', score=-0.5)]

    Args:
        runs: rankings; ties keep the order of the first.
        weights: of the runs; None takes the mean, :math:`1/R` each.
    """
    aligned = align(runs)
    return weighted_sum(aligned, [1.0] * len(runs), len(runs)) if weights is None else weighted_sum(aligned, weights)
