"""What a design finds, as its formula says and as simulation shows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rerank.evaluation.crossed import standard_error
from rerank.evaluation.power import Deviations, found_differences, measured_deviations, smallest_difference


@pytest.mark.parametrize(("queries", "seeds", "comparisons"), [(50, 1, 1), (200, 3, 1), (100, 5, 10)])
def test_the_smallest_difference_is_found_four_times_of_five(queries: int, seeds: int, comparisons: int) -> None:
    """By the test of the difference over its error; with one seed that is the paired t-test."""
    deviations = Deviations(query=0.2, seed=0.005 if seeds > 1 else 0.0, residual=0.1 if seeds > 1 else 0.0)
    truth = smallest_difference(deviations, queries, seeds, comparisons)
    rng, found = np.random.default_rng(5), 0
    for _ in range(1500):
        difference = truth + 0.2 * rng.standard_normal(queries) + np.zeros((seeds, 1))
        difference = difference + deviations.seed * rng.standard_normal((seeds, 1))
        difference = difference + deviations.residual * rng.standard_normal((seeds, queries))
        error, freedom = standard_error(difference)
        found += 2 * stats.t.sf(abs(difference.mean()) / error, freedom) < 0.05 / comparisons
    assert found / 1500 == pytest.approx(0.8, abs=0.05)


def test_more_of_anything_finds_less() -> None:
    one = Deviations(0.2, 0.01, 0.1)
    base = smallest_difference(one, 100, 3, 4)
    assert smallest_difference(one, 200, 3, 4) < base
    assert smallest_difference(one, 100, 6, 4) < base
    assert smallest_difference(one, 100, 3, 8) > base
    assert smallest_difference(one, 1, 3) == float("inf")
    classic = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * 0.2 / np.sqrt(10_000)
    assert smallest_difference(Deviations(0.2, 0.0, 0.0), 10_000, 1) == pytest.approx(classic, rel=1e-3)


def test_deviations_are_found_again() -> None:
    rng = np.random.default_rng(6)
    made = [
        0.2 * rng.standard_normal(400) + 0.03 * rng.standard_normal((6, 1)) + 0.1 * rng.standard_normal((6, 400))
        for _ in range(20)
    ]
    found = measured_deviations(made)
    assert found is not None
    assert (found.query, found.seed, found.residual) == pytest.approx((0.2, 0.03, 0.1), rel=0.15)
    single = measured_deviations([made[0][:1]])
    assert single is not None
    assert single == Deviations(pytest.approx(np.std(made[0][0], ddof=1)), 0.0, 0.0)
    assert measured_deviations([]) is None


def test_the_sentence_names_what_it_is_from() -> None:
    said = found_differences(300, 1, 8, {"AP": Deviations(0.2, 0.0, 0.0)}, measured=True)
    assert "300 queries, 1 seed and 8 comparisons" in said and "AP 0.0" in said and "measured" in said
