from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.evaluation.weights import GRID, search_weights, tune_weight
from rerank.retrieval.fuse import fuse
from rerank.retrieval.runs import Run, Scored
from tests.evaluation.random_runs import Qrels, random_qrels, random_run
from tests.evaluation.scored import evaluate

few = settings(max_examples=25, deadline=None)


def mean_of(runs: list[Run], qrels: Qrels) -> Callable[[tuple[float, ...]], float]:
    @functools.cache
    def mean(weights: tuple[float, ...]) -> float:
        return evaluate(fuse(runs, weights), qrels, "nDCG@5").mean["nDCG@5"]

    return mean


@few
@given(st.integers(0, 9999))
def test_two_weights_are_the_best_of_the_grid(seed: int) -> None:
    runs, qrels = [random_run(seed), random_run(seed + 1)], random_qrels(seed)
    mean = mean_of(runs, qrels)
    means = [mean((w, 1 - w)) for w in GRID]
    assert mean(search_weights(2, mean)) == max(means)
    assert tune_weight(runs[1], runs[0], qrels, "nDCG@5") == GRID[int(np.argmax(means))]


@pytest.mark.parametrize("seed", range(6))
def test_three_weights_come_near_the_best_of_all(seed: int) -> None:
    """The search nearly reaches a grid of tenths."""
    rng = np.random.default_rng(seed)
    qrels = {f"q{query}": {f"d{doc}": int(rng.integers(0, 3)) for doc in range(20)} for query in range(15)}
    runs = []
    for noise in (1.0, 2.0, 4.0):  # three views of the grades
        run = {}
        for query, grades in qrels.items():
            seen = [Scored(doc, grade + float(rng.normal(0, noise))) for doc, grade in grades.items()]
            run[query] = sorted(seen, key=lambda scored: -scored.score)[:15]
        runs.append(run)

    mean = mean_of(runs, qrels)
    weights = search_weights(3, mean)
    value = mean(weights)
    assert sum(weights) == pytest.approx(1)
    brute = max(mean((a / 10, b / 10, (10 - a - b) / 10)) for a in range(11) for b in range(11 - a))
    alone = max(mean((1, 0, 0)), mean((0, 1, 0)), mean((0, 0, 1)))
    assert value >= max(alone, mean((1 / 3, 1 / 3, 1 / 3)))
    assert value - alone >= 0.9 * (brute - alone) > 0
