"""Tune interpolation weights of runs on validation queries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from ir_measures import Measure

from rerank.evaluation.measures import Evaluator, Qrels
from rerank.retrieval.fuse import align, weighted_sum
from rerank.retrieval.runs import Run

Mean = Callable[[tuple[float, ...]], float]
"""Mean of a measure as a function of the weights."""

GRID = tuple(i / 20 for i in range(21))
ROUNDS = 10
"""Largest number of passes over all runs; two or three are usual."""


def tune_weight(run: Run, first_stage: Run, qrels: Qrels, measure: str | Measure) -> float:
    """Find the first stage's best weight w in ``fuse([first_stage, run], [w, 1 - w])``, the smallest of equal ones.

    >>> from rerank.retrieval.runs import Scored
    >>> model = {"q": [Scored("b", 5.0), Scored("a", 2.0)]}
    >>> first = {"q": [Scored("a", 8.0), Scored("b", 4.0)]}
    >>> tune_weight(model, first, {"q": {"b": 1}}, "RR")  # the model alone is right already
    0.0
    """
    mean = _mean_of([first_stage, run], qrels, measure)
    return max(GRID, key=lambda weight: mean((weight, 1 - weight)))


def tune_weights(runs: Sequence[Run], qrels: Qrels, measure: str | Measure) -> tuple[tuple[float, ...], float]:
    """Tune weights for :func:`rerank.retrieval.fuse.fuse` by coordinate search on the queries of the qrels.

    The search starts from equal weights and from each run alone. It gives one run after the other its best share of
    the grid and scales the others, until nothing improves. Deterministic; exhaustive on the grid for two runs.

    Returns:
        The weights, whose sum is 1, and the mean of the measure.
    """
    mean = _mean_of(runs, qrels, measure)
    best = search_weights(len(runs), mean)
    return best, mean(best)


def search_weights(count: int, mean: Mean, grid: Sequence[float] = GRID) -> tuple[float, ...]:
    """Run the search of :func:`tune_weights` for any function of the weights."""
    if count == 1:
        return (1.0,)
    ends = []
    for weights in (tuple([1 / count] * count), *(tuple(float(i == j) for j in range(count)) for i in range(count))):
        for _ in range(ROUNDS):
            before = weights
            for i in range(count):
                weights = max([weights, *(_with_share(weights, i, share) for share in grid)], key=mean)
            if weights == before:
                break
        ends.append(weights)
    return max(ends, key=mean)


def _with_share(weights: tuple[float, ...], i: int, share: float) -> tuple[float, ...]:
    """Set one weight and scale the others to what is left."""
    others = np.delete(np.array(weights), i)
    if not others.sum():  # this run had all: share equally
        others = np.ones_like(others)
    return tuple(np.insert((1 - share) * others / others.sum(), i, share).tolist())


def _mean_of(runs: Sequence[Run], qrels: Qrels, measure: str | Measure) -> Mean:
    """Return the mean of a measure as a cached function of the weights."""
    evaluator = Evaluator(qrels, measure)
    judged = [{query: documents for query, documents in run.items() if query in qrels} for run in runs]
    aligned = align(judged)

    @functools.cache
    def mean(weights: tuple[float, ...]) -> float:
        return evaluator(weighted_sum(aligned, weights)).mean[str(evaluator.measures[0])]

    return mean
