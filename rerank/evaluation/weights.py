"""Weights of runs that are summed, tuned on validation queries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from ir_measures import Measure

from rerank.evaluation.measures import Evaluator, Qrels
from rerank.retrieval.fuse import Aligned
from rerank.retrieval.runs import Run

Mean = Callable[[tuple[float, ...]], float]
"""The mean of a measure by the weights of what is summed."""

GRID = tuple(i / 20 for i in range(21))
ROUNDS = 10
"""How often a search goes through all runs at the most; two or three times are usual."""


def tune_weight(
    run: Run, first_stage: Run, qrels: Qrels, measure: str | Measure
) -> tuple[float, list[tuple[float, float]]]:
    """The weight with the best mean, and ``(weight, mean)`` for all of the grid; of equal ones the first.

    It is the first stage's share w in ``fuse([first_stage, run], [w, 1 - w])``. Tune on validation queries: filter
    the qrels to them.

    >>> from rerank.retrieval.runs import Scored
    >>> model = {"q": [Scored("b", 5.0), Scored("a", 2.0)]}
    >>> first = {"q": [Scored("a", 8.0), Scored("b", 4.0)]}
    >>> tune_weight(model, first, {"q": {"b": 1}}, "RR")[0]  # the model alone is right already
    0.0
    """
    mean = _mean_of([first_stage, run], qrels, measure)
    table = [(weight, mean((weight, 1 - weight))) for weight in GRID]
    return max(table, key=lambda row: row[1])[0], table


def tune_weights(runs: Sequence[Run], qrels: Qrels, measure: str | Measure) -> tuple[tuple[float, ...], float]:
    """Weights for :func:`rerank.retrieval.fuse.fuse`, found by coordinate search, and the mean that they reach.

    From equal weights on, and from each run alone, one run after the other gets the share of the grid that
    raises the mean most, the others what is left in the proportions that they have; until none gets another. Nothing
    is random, and of equal weights the first found stay. With two runs that is every share of the grid; with more, a
    maximum that no change of one share improves, if not always the highest.

    Args:
        runs: the runs; any number, also of different documents.
        qrels: judgments of the validation queries, and of these alone.
        measure: what to raise.

    Returns:
        The weights, whose sum is 1, and the mean of the measure.
    """
    mean = _mean_of(runs, qrels, measure)
    best = search_weights(len(runs), mean)
    return best, mean(best)


def search_weights(count: int, mean: Mean, grid: Sequence[float] = GRID) -> tuple[float, ...]:
    """The search of :func:`tune_weights`, for whatever weights raise."""
    if count == 1:
        return (1.0,)
    alone = [tuple(float(i == j) for j in range(count)) for i in range(count)]
    return max((_climb(start, mean, grid) for start in (tuple([1 / count] * count), *alone)), key=mean)


def _climb(weights: tuple[float, ...], mean: Mean, grid: Sequence[float]) -> tuple[float, ...]:
    for _ in range(ROUNDS):
        before = weights
        for i in range(len(weights)):
            weights = max([weights, *(_with_share(weights, i, share) for share in grid)], key=mean)
        if weights == before:
            break
    return weights


def _with_share(weights: tuple[float, ...], i: int, share: float) -> tuple[float, ...]:
    """Weights of which one is as given, and the others what is left, in their proportions."""
    others = np.delete(np.array(weights), i)
    if not others.sum():  # equal ones, where this run had all
        others = np.ones_like(others)
    return tuple(np.insert((1 - share) * others / others.sum(), i, share).tolist())


def _mean_of(runs: Sequence[Run], qrels: Qrels, measure: str | Measure) -> Mean:
    """The mean of a measure as a function of weights; what was asked is remembered."""
    evaluator = Evaluator(qrels, measure)
    judged = [{query: documents for query, documents in run.items() if query in qrels} for run in runs]
    aligned = Aligned.of(judged)

    @functools.cache
    def mean(weights: tuple[float, ...]) -> float:
        return evaluator(aligned.sum(weights)).mean[str(evaluator.measures[0])]

    return mean
