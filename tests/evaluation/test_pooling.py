"""Random effects against arithmetic, scipy and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rerank.evaluation.pooling import random_effects


def test_two_collections_by_hand() -> None:
    """v = 0.01 each: w = 100, Q = 100 (0.1² + 0.1²) = 2, C = 200 - 20000/200 = 100, tau² = (2 - 1)/100."""
    found = random_effects([0.1, 0.3], [0.1, 0.1])
    assert found.mean == pytest.approx(0.2)
    assert found.tau == pytest.approx(0.1)
    assert found.heterogeneity == pytest.approx(0.5)
    # w* = 1/0.02 = 50 each, q = max(1, 50 (0.01 + 0.01) / 1) = 1
    error = np.sqrt(1 / 100)
    assert found.error == pytest.approx(error)
    assert found.interval == pytest.approx((0.2 - stats.t.ppf(0.975, 1) * error, 0.2 + stats.t.ppf(0.975, 1) * error))
    assert found.p == pytest.approx(2 * stats.t.sf(2, 1))
    assert np.isnan(found.prediction).all()
    assert found.weights == pytest.approx((0.5, 0.5))


def test_equal_errors_and_much_spread_are_students_interval_of_the_differences() -> None:
    """With equal v, q / sum(w*) is the squared standard error of the plain mean wherever that exceeds v + tau²'s."""
    y = [0.01, 0.05, 0.12, -0.03, 0.09]
    found = random_effects(y, [0.01] * 5)
    low, high = stats.ttest_1samp(y, 0.0).confidence_interval(0.95)
    assert found.interval == pytest.approx((low, high))
    assert found.tau == pytest.approx(np.sqrt(np.var(y, ddof=1) - 0.01**2))
    half = stats.t.ppf(0.975, 3) * np.sqrt(found.tau**2 + found.error**2)
    assert found.prediction == pytest.approx((np.mean(y) - half, np.mean(y) + half))


def test_what_does_not_vary_is_the_fixed_effect() -> None:
    found = random_effects([0.1, 0.1, 0.1], [0.1, 0.05, 0.2])
    assert found.mean == pytest.approx(0.1) and found.tau == 0 and found.heterogeneity == 0
    weights = np.array([100, 400, 25])
    assert found.error == pytest.approx(1 / np.sqrt(weights.sum())), "never narrower than the errors alone make it"
    assert found.weights == pytest.approx(tuple(weights / weights.sum()))


def test_one_collection_is_itself() -> None:
    found = random_effects([0.1], [0.05])
    assert found.interval == pytest.approx((0.1 - 1.959964 * 0.05, 0.1 + 1.959964 * 0.05))
    with pytest.raises(ValueError, match="standard errors above 0"):
        random_effects([0.1], [0.0])


@pytest.mark.parametrize("tau", [0.0, 0.03])
def test_intervals_hold_their_level_with_few_collections(tau: float) -> None:
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(600):
        errors = rng.uniform(0.01, 0.03, 5)
        found = random_effects(0.02 + tau * rng.standard_normal(5) + errors * rng.standard_normal(5), errors)
        covered += found.interval[0] <= 0.02 <= found.interval[1]
    assert covered / 600 >= 0.925
