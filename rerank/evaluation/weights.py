"""Tune interpolation weights on validation queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from ir_measures import Measure

from rerank.evaluation.measures import Evaluator, Qrels
from rerank.retrieval.fuse import align, weighted_sum
from rerank.retrieval.runs import Run

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
    evaluator = Evaluator(qrels, measure)
    aligned = align([{query: one[query] for query in one if query in qrels} for one in (first_stage, run)])
    name = str(evaluator.measures[0])
    return max(GRID, key=lambda weight: evaluator(weighted_sum(aligned, (weight, 1 - weight))).mean[name])


def search_weights(
    count: int, mean: Callable[[tuple[float, ...]], float], grid: Sequence[float] = GRID
) -> tuple[float, ...]:
    """Search for the weights, whose sum is 1, with the highest mean of a measure, by coordinate search.

    The search starts from equal weights and from each run alone. It gives one run after the other its best share of
    the grid and scales the others, until nothing improves. Deterministic; exhaustive on the grid for two runs.

    >>> search_weights(2, lambda weights: -abs(weights[0] - 0.3))
    (0.3, 0.7)
    """
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
