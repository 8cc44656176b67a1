"""What an experiment would have found, as simulation and the textbook's formula say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rerank.evaluation.crossed import standard_error
from rerank.evaluation.significance import smallest_difference


@pytest.mark.parametrize(
    ("queries", "seeds", "folds", "comparisons"),
    [(50, 1, 1, 1), (200, 3, 1, 1), (100, 5, 1, 10), (200, 2, 5, 4), (200, 1, 5, 1)],
)
def test_the_smallest_difference_is_found_four_times_of_five(
    queries: int, seeds: int, folds: int, comparisons: int
) -> None:
    """What the errors of some experiments say is found, others find, by the test of the difference over its error."""
    alone = seeds == folds == 1
    rng, places = np.random.default_rng(5), np.arange(queries) % folds

    def simulated() -> np.ndarray:
        difference = rng.normal(0, 0.2, queries) + np.zeros((seeds, 1))
        if alone:
            return difference
        trainings = rng.normal(0, 0.005, (seeds, folds))[:, places]
        return difference + trainings + rng.normal(0, 0.1, (seeds, queries))

    errors, freedoms = np.array([standard_error(simulated(), places) for _ in range(300)]).T
    truth = smallest_difference(np.sqrt(np.mean(errors**2)), freedoms.mean(), comparisons)
    found = 0
    for _ in range(1500):
        difference = truth + simulated()
        error, freedom = standard_error(difference, places)
        found += 2 * stats.t.sf(abs(difference.mean()) / error, freedom) < 0.05 / comparisons
    assert found / 1500 == pytest.approx(0.8, abs=0.05)


def test_more_comparisons_find_less_and_no_freedom_finds_nothing() -> None:
    assert smallest_difference(0.01, 100, 8) > smallest_difference(0.01, 100, 4) > smallest_difference(0.01, 100)
    assert smallest_difference(0.01, 100) < smallest_difference(0.01, 5)
    assert smallest_difference(0.01, 0) == float("inf")
    classic = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * 0.01
    assert smallest_difference(0.01, 10_000) == pytest.approx(classic, rel=1e-3)
