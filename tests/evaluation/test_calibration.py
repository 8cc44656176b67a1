"""Maximum likelihood, thresholds and errors by their definitions; what is cross-fitted has not seen its fold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

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


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=3, max_size=40),
    seed=st.integers(0, 1000),
    precision=st.sampled_from([0.5, 0.8, 0.9]),
    levels=st.sampled_from([3, 40, 10**6]),
)
def test_a_threshold_is_what_its_definition_says(sizes: list[int], seed: int, precision: float, levels: int) -> None:
    """Cut by cut, with binomial tails where each query has one candidate, and Kish's number of units otherwise."""
    rng = np.random.default_rng(seed)
    query = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    scores = rng.integers(0, levels, len(query)).astype(float)
    relevant = rng.random(len(query)) < np.clip(0.5 + scores / levels, 0, 1)

    def passes(least: float, starts: int) -> bool:
        own = np.bincount(query[scores >= least])
        units, share = own.sum() ** 2 / (own**2).sum(), relevant[scores >= least].mean()
        if own.max() == 1:
            return bool(binom.sf(relevant[scores >= least].sum() - 1, own.sum(), precision) <= 0.05 / starts)
        return bool(share > 0 and beta.cdf(precision, share * units, (1 - share) * units + 1) <= 0.05 / starts)

    cuts = sorted(set(scores.tolist()), reverse=True)
    sought = [size for size in (16, 64, 256) if size <= len(scores)]
    reached = []
    for size in sought:
        start = next(number for number, least in enumerate(cuts) if (scores >= least).sum() >= size)
        for least in cuts[start:]:
            if not passes(least, len(sought)):
                break
            reached.append(least)
    assert threshold(scores, relevant, query, precision) == min(reached, default=None)


@pytest.mark.parametrize(("queries", "depth", "spread"), [(300, 1, 0.0), (60, 10, 0.0), (60, 10, 1.5), (60, 10, 4.0)])
def test_promises_hold(queries: int, depth: int, spread: float) -> None:
    """In all but 5 % of draws the precision that is promised is there in what the draws are from."""
    rng = np.random.default_rng(3)
    many = np.repeat(np.arange(20_000), depth)

    def draw(query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores, and what is relevant: with the query's own shift, so that its candidates are alike."""
        scores, shift = rng.normal(0, 1.5, len(query)), rng.normal(0, spread, query[-1] + 1)
        return scores, rng.random(len(query)) < sigmoid(2.5 * scores - 2 + shift[query])

    scores, relevant = draw(many)
    order = np.argsort(-scores)
    true = np.cumsum(relevant[order]) / np.arange(1, len(order) + 1)
    query, broken, naive, made, times = np.repeat(np.arange(queries), depth), 0, 0, 0, 150
    for _ in range(times):
        own, hits = draw(query)
        for precision in (0.5, 0.8):
            if (least := threshold(own, hits, query, precision)) is not None:
                made += 1
                broken += true[(scores >= least).sum() - 1] < precision
            top = np.argsort(-own)
            enough = np.flatnonzero(np.cumsum(hits[top]) >= precision * np.arange(1, len(own) + 1))
            naive += len(enough) > 0 and true[(scores >= own[top[enough[-1]]]).sum() - 1] < precision
    assert broken <= binom.ppf(0.99, 2 * times, 0.05)
    assert naive > 0.3 * 2 * times  # what the lowest cut that happens to reach it would do
    assert made > (0.5 if spread < 4 else 0.2) * 2 * times


def test_what_cannot_be_promised_is_not() -> None:
    """Fifteen candidates promise nothing; copies of them within their queries promise no more than they do."""
    scores, relevant = np.arange(16.0), np.ones(16, dtype=bool)
    assert threshold(scores[1:], relevant[1:], np.arange(15), 0.5) is None
    assert threshold(scores, relevant, np.arange(16), 0.5) == 0.0
    assert threshold(scores, relevant, np.arange(16), 0.8) == 0.0  # 0.8 ** 16 is 0.028
    assert threshold(scores, relevant, np.arange(16), 0.9) is None  # 0.9 ** 16 is 0.185
    assert threshold(scores, relevant, np.arange(16) // 4, 0.5) is None  # 0.5 ** 4
    assert threshold(scores, ~relevant, np.arange(16), 0.5) is None


def test_no_candidate_is_judged_by_its_own_fold() -> None:
    scores, relevant = drawn(1.0, -3.0, 1000)
    query = np.arange(1000) // 2
    fold = query % 5
    logits, above = cross_fitted(scores, relevant, query, fold)
    own = fold == 2
    changed = np.where(own, ~relevant, relevant)
    other, top = cross_fitted(scores, changed, query, fold)
    assert (other[own] == logits[own]).all() and (other[~own] != logits[~own]).all()
    for precision, there in above.items():
        assert (top[precision][own] == there[own]).all()
        assert relevant[there].mean() > precision - 0.1


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
