"""What a design finds, as its formula says and as simulation shows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rerank.evaluation.crossed import standard_error
from rerank.evaluation.power import (
    Deviations,
    found_differences,
    measured_deviations,
    planned_error,
    smallest_difference,
)


def simulated(rng: np.random.Generator, one: Deviations, queries: int, seeds: int, folds: np.ndarray) -> np.ndarray:
    difference = one.query * rng.standard_normal(queries) + np.zeros((seeds, 1))
    difference = difference + one.seed * rng.standard_normal((seeds, folds.max() + 1))[:, folds]
    return difference + one.residual * rng.standard_normal((seeds, queries))


@pytest.mark.parametrize(
    ("queries", "seeds", "folds", "comparisons"),
    [(50, 1, 1, 1), (200, 3, 1, 1), (100, 5, 1, 10), (200, 2, 5, 4), (200, 1, 5, 1)],
)
def test_the_smallest_difference_is_found_four_times_of_five(
    queries: int, seeds: int, folds: int, comparisons: int
) -> None:
    """By the test of the difference over its error; with one seed that is the paired t-test, of folds if there are."""
    alone = seeds == folds == 1
    deviations = Deviations(query=0.2, seed=0.0 if alone else 0.005, residual=0.0 if alone else 0.1)
    truth = smallest_difference(*planned_error(deviations, queries, seeds, folds), comparisons)
    rng, found = np.random.default_rng(5), 0
    places = np.arange(queries) % folds
    for _ in range(1500):
        difference = truth + simulated(rng, deviations, queries, seeds, places)
        error, freedom = standard_error(difference, places)
        found += 2 * stats.t.sf(abs(difference.mean()) / error, freedom) < 0.05 / comparisons
    assert found / 1500 == pytest.approx(0.8, abs=0.05)


def test_more_of_anything_finds_less() -> None:
    one = Deviations(0.2, 0.01, 0.1)

    def found(queries: int, seeds: int, comparisons: int, folds: int = 1) -> float:
        return smallest_difference(*planned_error(one, queries, seeds, folds), comparisons)

    base = found(100, 3, 4)
    assert found(200, 3, 4) < base
    assert found(100, 6, 4) < base
    assert found(100, 3, 8) > base
    assert found(100, 3, 4, folds=5) < base
    assert found(1, 3, 1) == float("inf")
    assert found(0, 1, 1) == float("inf")
    classic = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * 0.2 / np.sqrt(10_000)
    assert smallest_difference(*planned_error(Deviations(0.2, 0.0, 0.0), 10_000, 1)) == pytest.approx(classic, rel=1e-3)


@pytest.mark.parametrize("folds", [1, 4])
def test_deviations_are_found_again_and_give_the_error_that_was_measured(folds: int) -> None:
    rng, places, made = np.random.default_rng(6), np.arange(400) % folds, Deviations(0.2, 0.03, 0.1)
    pairs = [simulated(rng, made, 400, 6, places) for _ in range(60)]
    found = [one for pair in pairs if (one := measured_deviations(pair, places)) is not None]
    squares = [[one.query**2, one.seed**2, one.residual**2] for one in found]
    assert np.sqrt(np.mean(squares, axis=0)).tolist() == pytest.approx([0.2, 0.03, 0.1], rel=0.1)
    ratios = [
        planned_error(one, 400, 6, folds)[0] / standard_error(pair, places)[0]
        for one, pair in zip(found, pairs, strict=True)
    ]
    assert np.mean(ratios) == pytest.approx(1, abs=0.02)


def test_one_seed_and_too_few_queries() -> None:
    one = np.random.default_rng(7).normal(0, 0.2, (1, 50))
    assert measured_deviations(one, np.zeros(50)) == Deviations(pytest.approx(np.std(one, ddof=1)), 0.0, 0.0)
    assert measured_deviations(one[:, :1], np.zeros(1)) is None
    assert measured_deviations(one[:, :3], np.arange(3)) is None


def test_the_sentence_names_what_it_is_from_and_averages_nothing() -> None:
    wide, narrow = Deviations(0.2, 0.0, 0.0), Deviations(0.1, 0.0, 0.0)
    said = found_differences(300, 1, 1, 8, {"AP": [wide, narrow]}, measured=True)
    ends = [smallest_difference(*planned_error(one, 300, 1), 8) for one in (narrow, wide)]
    assert "300 queries, 1 seed and 8 comparisons" in said and "measured" in said
    assert f"AP {ends[0]:.3f} to {ends[1]:.3f}" in said
