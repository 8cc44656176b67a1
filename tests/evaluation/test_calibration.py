"""Maximum likelihood, thresholds and errors by their definitions; what is cross-fitted has not seen its fold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.evaluation.calibration import Found, Quality, cross_fitted, curve, fitted, sigmoid, threshold


def drawn(a: float, b: float, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores, and candidates that are relevant with the probabilities that a and b say."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(3.0, 2.0, count)
    return scores, rng.random(count) < sigmoid(a * scores + b)


@pytest.mark.parametrize(("a", "b"), [(0.7, -3.0), (25.0, -60.0), (0.01, 0.0), (3.0, 5.0)])
def test_the_fit_is_the_maximum_of_the_likelihood(a: float, b: float) -> None:
    scores, relevant = drawn(a, b, 4000)
    ours = fitted(scores, relevant)
    p = sigmoid(ours[0] * scores + ours[1])
    assert p.mean() == pytest.approx(relevant.mean(), abs=1e-9)  # where its derivatives are 0
    assert (p * scores).mean() == pytest.approx((relevant * scores).mean(), abs=1e-8)
    if a == 0.7:
        assert ours == pytest.approx((a, b), rel=0.15)


@settings(max_examples=50, deadline=None)
@given(scale=st.sampled_from([1e-4, 0.5, 30.0]), shift=st.sampled_from([-100.0, 0.0, 7.0]))
def test_probabilities_do_not_depend_on_the_unit_of_scores(scale: float, shift: float) -> None:
    scores, relevant = drawn(0.8, -2.0, 500)
    one, other = fitted(scores, relevant), fitted(scale * scores + shift, relevant)
    there = sigmoid(other[0] * (scale * scores + shift) + other[1])
    assert np.allclose(sigmoid(one[0] * scores + one[1]), there, atol=1e-7)


def test_what_has_no_maximum_is_refused() -> None:
    scores, relevant = np.arange(6.0), np.array([False] * 3 + [True] * 3)
    with pytest.raises(UserError, match="any slope fits"):
        fitted(scores, relevant)
    with pytest.raises(UserError, match="no other candidate"):
        fitted(scores, np.ones(6, dtype=bool))
    with pytest.raises(UserError, match="no relevant candidate"):
        fitted(scores, np.zeros(6, dtype=bool))
    with pytest.raises(UserError, match="does not mean more relevant"):
        fitted(-scores, np.array([False, True, False, False, True, True]))


def test_errors_by_hand() -> None:
    probabilities, relevant = np.array([0.12, 0.18, 0.75, 0.71]), np.array([False, True, True, True])
    logits = np.log(probabilities / (1 - probabilities))
    found = Quality.of(logits, relevant)
    assert found.log_loss == pytest.approx(-np.log([0.88, 0.18, 0.75, 0.71]).mean())
    assert found.brier == pytest.approx((0.12**2 + 0.82**2 + 0.25**2 + 0.29**2) / 4)
    assert found.ece == pytest.approx((2 * abs(0.15 - 0.5) + 2 * abs(0.73 - 1)) / 4)
    bins = curve(probabilities, relevant)
    assert [(bin.low, bin.high, bin.count, bin.relevant) for bin in bins] == [(0.1, 0.2, 2, 0.5), (0.7, 0.8, 2, 1.0)]
    assert curve(np.array([1.0]), np.array([True]))[0].high == 1.0
    assert Quality.of(np.array([1000.0, -1000.0]), np.array([False, False])).log_loss == 500


@settings(max_examples=200, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.5]), st.booleans()), min_size=1, max_size=12),
    precision=st.sampled_from([0.5, 0.8, 0.9]),
)
def test_a_threshold_is_the_lowest_that_has_the_precision(pairs: list[tuple[float, bool]], precision: float) -> None:
    scores, relevant = np.array([score for score, _ in pairs]), np.array([is_so for _, is_so in pairs])
    enough = [least for least in set(scores.tolist()) if relevant[scores >= least].mean() >= precision]
    assert threshold(scores, relevant, precision) == min(enough, default=None)


def test_no_candidate_is_judged_by_its_own_fold() -> None:
    scores, relevant = drawn(1.0, -3.0, 1000)
    fold = np.arange(1000) % 5
    logits, above = cross_fitted(scores, relevant, fold)
    own = fold == 2
    changed = np.where(own, ~relevant, relevant)
    other, top = cross_fitted(scores, changed, fold)
    assert (other[own] == logits[own]).all() and (other[~own] != logits[~own]).all()
    for precision, there in above.items():
        assert (top[precision][own] == there[own]).all()
        assert relevant[there].mean() == pytest.approx(precision, abs=0.1)


def test_intervals_are_over_queries() -> None:
    """Twenty copies of each candidate within its query tell no more than one; twenty times the queries do."""
    rng = np.random.default_rng(0)
    relevant, query = rng.random(40) < 0.6, np.arange(40)
    top = np.ones(40, dtype=bool)
    one = Found.of(top, relevant, query)
    copies = Found.of(np.tile(top, 20), np.tile(relevant, 20), np.tile(query, 20))
    more = Found.of(np.tile(top, 20), np.tile(relevant, 20), np.arange(800))
    assert one.precision == copies.precision == more.precision == relevant.mean()
    assert (copies.low, copies.high) == pytest.approx((one.low, one.high))
    assert one.low is not None and more.low is not None and one.high is not None and more.high is not None
    assert more.high - more.low < 0.4 * (one.high - one.low)
    assert Found.of(~top, relevant, query).precision is None
    assert Found.of(query == 3, relevant, query).low is None
