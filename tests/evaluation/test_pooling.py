"""Random effects against arithmetic, published examples, statsmodels and simulation."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rerank.evaluation.crossed import crossed_difference
from rerank.evaluation.pooling import Estimator, RandomEffects, random_effects, single

ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
both = pytest.mark.parametrize("estimator", ESTIMATORS)
collections = st.lists(st.tuples(st.floats(-0.2, 0.2), st.floats(0.002, 0.1)), min_size=2, max_size=8)

# Thirteen trials of the BCG vaccine (Colditz et al. 1994): tuberculosis and not, of the vaccinated and the others.
BCG = """4 119 11 128|6 300 29 274|3 228 11 209|62 13536 248 12619|33 5036 47 5761|180 1361 372 1079|8 2537 10 619|
505 87886 499 87892|29 7470 45 7232|17 1699 65 1600|186 50448 141 27197|5 2493 3 2338|27 16886 29 17825"""


def bcg() -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the relative risk, and their standard errors."""
    a, b, c, d = np.array([row.split() for row in BCG.split("|")], dtype=np.float64).T
    return np.log(a / (a + b)) - np.log(c / (c + d)), np.sqrt(1 / a - 1 / (a + b) + 1 / c - 1 / (c + d))


def spread(y: np.ndarray, v: np.ndarray, tau2: float) -> tuple[np.ndarray, float]:
    weights = 1 / (v + tau2)
    return weights, (weights * y).sum() / weights.sum()


def test_the_published_example() -> None:
    """Viechtbauer (2010), "Conducting meta-analyses in R with the metafor package": tau² .3132, I² 92.22 %, -.7145."""
    found = random_effects(*bcg())
    assert found.tau**2 == pytest.approx(0.3132, abs=5e-5)
    assert found.mean == pytest.approx(-0.7145, abs=5e-5)
    assert found.heterogeneity == pytest.approx(0.9222, abs=5e-5)


def test_paule_mandel_equals_statsmodels() -> None:
    combine_effects = pytest.importorskip("statsmodels.stats.meta_analysis").combine_effects
    y, errors = bcg()
    found = random_effects(y, errors, "Paule-Mandel")
    theirs = combine_effects(y, errors**2, method_re="iterated", use_t=True)
    assert found.tau**2 == pytest.approx(theirs.tau2)
    assert (found.mean, found.error) == (pytest.approx(theirs.mean_effect_re), pytest.approx(theirs.sd_eff_w_re_hksj))


@given(collections)
def test_estimates_solve_their_equations(given_: list[tuple[float, float]]) -> None:
    """REML's score is 0 and no variance is likelier; Paule and Mandel's sum of squares is k - 1; or both end at 0."""
    y, v = np.array([one for one, _ in given_]), np.array([error for _, error in given_]) ** 2

    def likelihood(tau2: float) -> float:
        weights, mean = spread(y, v, tau2)
        return float(np.log(weights).sum() - np.log(weights.sum()) - (weights * (y - mean) ** 2).sum())

    tau2 = random_effects(y, np.sqrt(v)).tau ** 2
    weights, mean = spread(y, v, tau2)
    score = (weights**2 * (y - mean) ** 2).sum() - weights.sum() + (weights**2).sum() / weights.sum()
    assert (score <= 1e-9 * weights.sum()) if tau2 == 0 else abs(score) < 1e-4 * weights.sum()
    assert likelihood(tau2) >= max(map(likelihood, np.ptp(y) ** 2 * np.linspace(0, 1, 57))) - 1e-9

    tau2 = random_effects(y, np.sqrt(v), "Paule-Mandel").tau ** 2
    weights, mean = spread(y, v, tau2)
    squares = (weights * (y - mean) ** 2).sum()
    assert squares <= len(y) - 1 + 1e-9 if tau2 == 0 else squares == pytest.approx(len(y) - 1)


@given(collections, st.sampled_from(ESTIMATORS), st.floats(-1, 1), st.floats(0.1, 10), st.randoms())
def test_units_and_order_do_not_matter(
    given_: list[tuple[float, float]], estimator: Estimator, shift: float, scale: float, random: object
) -> None:
    y, errors = (np.array(column) for column in zip(*given_, strict=True))
    one = random_effects(y, errors, estimator)
    order = list(range(len(y)))
    random.shuffle(order)  # type: ignore[attr-defined]
    other = random_effects(scale * (y[order] + shift), scale * errors[order], estimator)
    assert other.mean == pytest.approx(scale * (one.mean + shift), abs=1e-6)
    assert other.tau == pytest.approx(scale * one.tau, rel=1e-4, abs=1e-4)
    assert other.error == pytest.approx(scale * one.error, rel=1e-3)
    assert other.heterogeneity == pytest.approx(one.heterogeneity, abs=1e-3)


@both
def test_two_collections_by_hand(estimator: Estimator) -> None:
    """v = 0.01 each: tau² is the variance of both, 0.02, less 0.01; I² = 0.01 / 0.02."""
    found = random_effects([0.1, 0.3], [0.1, 0.1], estimator)
    assert found.mean == pytest.approx(0.2)
    assert found.tau == pytest.approx(0.1)
    assert found.heterogeneity == pytest.approx(0.5)
    # w = 1/0.02 = 50 each, q = max(1, 50 (0.01 + 0.01) / 1) = 1
    error = np.sqrt(1 / 100)
    assert (found.error, found.freedom) == (pytest.approx(error), 1)
    assert found.interval == pytest.approx((0.2 - stats.t.ppf(0.975, 1) * error, 0.2 + stats.t.ppf(0.975, 1) * error))
    assert found.p == pytest.approx(2 * stats.t.sf(2, 1))
    assert np.isnan(found.prediction).all()
    assert found.weights == pytest.approx((0.5, 0.5))


@both
def test_equal_errors_and_much_spread_are_students_interval_of_the_differences(estimator: Estimator) -> None:
    """With equal v, q / sum(w) is the squared standard error of the plain mean wherever that exceeds v + tau²'s."""
    y = [0.01, 0.05, 0.12, -0.03, 0.09]
    found = random_effects(y, [0.01] * 5, estimator)
    low, high = stats.ttest_1samp(y, 0.0).confidence_interval(0.95)
    assert found.interval == pytest.approx((low, high))
    assert found.tau == pytest.approx(np.sqrt(np.var(y, ddof=1) - 0.01**2))
    half = stats.t.ppf(0.975, 3) * np.sqrt(found.tau**2 + found.error**2)
    assert found.prediction == pytest.approx((np.mean(y) - half, np.mean(y) + half))


@both
@pytest.mark.parametrize("y", [[0.1, 0.1, 0.1], [0.1, 0.12, 0.09]])
def test_what_varies_no_more_than_its_errors_is_the_fixed_effect(estimator: Estimator, y: list[float]) -> None:
    found = random_effects(y, [0.1, 0.05, 0.2], estimator)
    weights = np.array([100, 400, 25])
    assert found.mean == pytest.approx((weights * y).sum() / weights.sum())
    assert found.tau == 0 and found.heterogeneity == 0
    assert found.error == pytest.approx(1 / np.sqrt(weights.sum())), "never narrower than the errors alone make it"
    assert found.weights == pytest.approx(tuple(weights / weights.sum()))


def test_one_collection_is_itself() -> None:
    """With the interval and p-value that it has on its own, by Student's t."""
    found = crossed_difference(np.random.default_rng(5).normal(0.02, 0.1, (3, 40)) + np.array([[0.0], [0.05], [0.1]]))
    total = single(found)
    assert (total.mean, total.interval, total.p) == (found.mean, found.interval, found.p)
    assert (total.error, total.freedom) == (found.error, found.freedom)
    assert np.isnan([total.tau, total.heterogeneity, *total.prediction]).all(), "of one, nothing is known of others"


@pytest.mark.parametrize(
    ("y", "errors"), [([], []), ([0.1], [0.05]), ([0.1, 0.2], [0.1]), ([0.1, 0.2], [0.1, 0.0]), ([0.1, np.nan], [1, 1])]
)
def test_what_cannot_be_pooled(y: list[float], errors: list[float]) -> None:
    with pytest.raises(ValueError, match="two differences or more"):
        random_effects(y, errors)


ERRORS = np.array([0.058, 0.0083, 0.0095, 0.0049, 0.0029, 0.0029])
"""Of six collections of the evidence: docs/evidence.md."""


@pytest.mark.parametrize("trials", [500, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("tau", [0.0, 0.0084, 0.03])
def test_intervals_hold_their_level_with_six_collections(tau: float, trials: int) -> None:
    """Of nominal 95: 92 to 100; unequal errors and a small tau cost two points."""
    rng = np.random.default_rng(4)

    def pooled() -> RandomEffects:
        return random_effects(0.02 + tau * rng.standard_normal(6) + ERRORS * rng.standard_normal(6), ERRORS)

    found = [pooled() for _ in range(trials)]
    covered = np.mean([one.interval[0] <= 0.02 <= one.interval[1] for one in found])
    assert covered >= 0.925 - 3 * np.sqrt(0.07 / trials)
    predicted = np.mean([one.prediction[0] <= 0.02 + tau * rng.standard_normal() <= one.prediction[1] for one in found])
    assert predicted >= 0.86 - 3 * np.sqrt(0.11 / trials)
