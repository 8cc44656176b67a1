"""Intervals over queries and seeds: coverage and power by simulation, arithmetic, agreement of p with the interval."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rerank.evaluation.significance import Crossed, crossed_difference, paired, standard_error


class Design(NamedTuple):
    """Queries, seeds and folds, and standard deviations over queries, trainings and of a query with a training."""

    queries: int
    seeds: int
    folds: int
    query: float
    training: float
    residual: float

    def difference(self, rng: np.random.Generator, truth: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Draw differences ``[S, Q]`` around ``truth``, with heavy tails over queries, and the queries' folds."""
        folds = np.arange(self.queries) % self.folds
        difference = truth + self.query * rng.standard_t(4, self.queries) / np.sqrt(2)
        difference = difference + self.training * rng.standard_normal((self.seeds, self.folds))[:, folds]
        return difference + self.residual * rng.standard_normal((self.seeds, self.queries)), folds

    def draw(self, rng: np.random.Generator, truth: float, place: int) -> Crossed:
        return crossed_difference(*self.difference(rng, truth), seed=place, resamples=500)


DESIGNS = {
    "SciFact": Design(300, 3, 1, 0.145, 0.08, 0.22),
    "NFCorpus": Design(323, 3, 1, 0.02, 0.012, 0.106),
    "DL": Design(43, 3, 1, 0.035, 0.0, 0.093),
    "Cranfield": Design(225, 1, 5, 0.05, 0.01, 0.0),
    "CISI": Design(76, 3, 5, 0.01, 0.005, 0.025),
    "trainings": Design(200, 3, 5, 0.01, 0.03, 0.05),
}
trials_of = pytest.mark.parametrize("trials", [250, pytest.param(3000, marks=pytest.mark.slow)])


@trials_of
@pytest.mark.parametrize("name", DESIGNS)
def test_intervals_hold_the_truth_as_often_as_they_say(name: str, trials: int) -> None:
    """Intervals contain the truth in 95 of 100 cases, in fewer if seeds matter most, since three tell little."""
    rng = np.random.default_rng(1)
    found = [DESIGNS[name].draw(rng, 0.03, place) for place in range(trials)]
    covered = np.mean([one.interval[0] <= 0.03 <= one.interval[1] for one in found])
    doubt = 3 * np.sqrt(0.05 / trials)
    assert 0.925 - doubt <= covered <= 0.99 + doubt


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(2, 30), st.floats(-0.3, 0.3), st.integers(0, 1000))
def test_p_belongs_to_the_interval(seeds: int, queries: int, truth: float, seed: int) -> None:
    difference, _ = Design(queries, seeds, 1, 0.2, 0.05, 0.15).difference(np.random.default_rng(seed), truth)
    found = crossed_difference(difference, resamples=500)
    if 0.003 < found.p < 0.99:
        for level in (1 - found.p * 0.95, 1 - min(0.999, found.p * 1.05)):
            low, high = crossed_difference(difference, level=level, resamples=500).interval
            assert (low <= 0 <= high) == (level > 1 - found.p)
    turned = crossed_difference(-difference, resamples=500)
    assert turned.mean == -found.mean


def test_folds_that_are_trained_apart_have_an_error_each() -> None:
    """Two folds have two queries each, with means 0, .2 | .4, .6, and three seeds, with means around the fold's own."""
    of_seeds = np.array([[-0.1, 0.03], [0.0, 0.03], [0.1, -0.06]])
    folds = np.array([0, 0, 1, 1])
    difference = np.array([0.0, 0.2, 0.4, 0.6]) + of_seeds[:, folds]
    of_queries = np.var([0.0, 0.2, 0.4, 0.6], ddof=1) / 4
    of_fold = [0.25 * np.var(column, ddof=1) / 3 for column in of_seeds.T]
    error, freedom = standard_error(difference, folds)
    total = of_queries + sum(of_fold)
    assert error == pytest.approx(np.sqrt(total))
    assert freedom == pytest.approx(total**2 / (of_queries**2 / 3 + sum(part**2 for part in of_fold) / 2))


def test_folds_with_one_seed_are_the_units() -> None:
    """The interval is that of a t-test on the means of folds, whose queries share a training."""
    folds = np.repeat(np.arange(5), 40)
    difference = np.random.default_rng(8).normal(0.03, 0.1, (1, 200)) + np.array([0.01, -0.02, 0.0, 0.03, 0.02])[folds]
    means = difference.reshape(5, 40).mean(axis=1)
    found = crossed_difference(difference, folds)
    expected = stats.ttest_1samp(means, 0.0)
    assert (found.error, found.freedom) == (pytest.approx(stats.sem(means)), 4)
    low, high = expected.confidence_interval(0.95)
    assert found.interval == pytest.approx((low, high), abs=0.05 * (high - low))
    assert found.p == pytest.approx(expected.pvalue, rel=0.2)


def test_crossed_difference_is_undefined_without_variance() -> None:
    """No variance is seen without queries, with one, without a difference, or if all are equal; none is claimed."""
    assert np.isnan(crossed_difference(np.zeros((3, 0))).mean)
    for values in (np.zeros((2, 4)), np.full((2, 4), 0.25), np.full((1, 2), 0.25), np.array([[0.1], [0.2], [0.4]])):
        found = crossed_difference(values)
        assert found.mean == pytest.approx(values.mean())
        assert np.isnan([*found.interval, found.p, found.error]).all()


def test_pairs_are_by_query_and_seed() -> None:
    run, first = np.array([[0.5, np.nan, 0.1 + 0.2], [1.0, 0.5, 0.3]]), np.array([[0.25, 0.5, 0.3]])
    difference, folds = paired(run, first, np.array([1, 1, 2]))
    assert difference.tolist() == [[0.25, 0.0], [0.75, 0.0]]
    assert folds.tolist() == [1, 2]
    assert paired(run, first)[1].tolist() == [0, 0]
    with pytest.raises(ValueError, match="seeds are paired"):
        paired(np.zeros((2, 3)), np.zeros((3, 3)))
