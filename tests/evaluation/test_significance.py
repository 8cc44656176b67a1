from __future__ import annotations

import math
from random import Random
from typing import get_args

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.evaluation.significance import Correction, cohens_d, correct, crossed_difference, p_value, paired

few = settings(max_examples=30, deadline=None)
values = st.lists(st.integers(-8, 8).map(lambda i: i / 8), min_size=3, max_size=12).map(np.array)
p_values = st.lists(st.floats(0, 1) | st.just(math.nan), max_size=12)


def differences(run: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    return paired(run[None], baseline[None])[0][0]


def interval(difference: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    return crossed_difference(difference[None], level=level).interval


def pairs(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    baseline = rng.beta(2, 2, count)
    return np.clip(baseline + rng.normal(0.03, 0.15, count), 0, 1), baseline


@pytest.mark.parametrize("count", [5, 43, 250])
@pytest.mark.parametrize("seed", [0, 1])
def test_tests_equal_scipys(count: int, seed: int) -> None:
    run, baseline = pairs(seed, count)
    difference = differences(run, baseline)
    assert p_value("t-test", difference) == pytest.approx(scipy.stats.ttest_rel(run, baseline).pvalue)
    assert p_value("wilcoxon", difference) == pytest.approx(scipy.stats.wilcoxon(run, baseline).pvalue)
    theirs = scipy.stats.permutation_test(
        (run - baseline,), lambda x, axis: np.mean(x, axis=axis), permutation_type="samples", rng=seed, vectorized=True
    ).pvalue
    if 2**count <= 10_000:
        assert p_value("randomisation", difference) == pytest.approx(theirs)
    else:  # both are draws of 10,000: five standard errors of their difference
        error = math.sqrt(2 * theirs * (1 - theirs) / 10_000)
        assert p_value("randomisation", difference, seed) == pytest.approx(theirs, abs=5 * error + 2e-4)


@few
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=3, max_size=40))
def test_wilcoxon_takes_equal_differences_of_precisions_for_equal(found: list[tuple[int, int]]) -> None:
    """SciPy tests counts of relevant documents, whose differences are exact; .3 − .2 and .2 − .1 are not."""
    run, baseline = np.array(found).T
    if (run != baseline).any():
        expected = scipy.stats.wilcoxon(run - baseline).pvalue
        assert p_value("wilcoxon", differences(run / 10, baseline / 10)) == pytest.approx(expected)


@pytest.mark.parametrize("nothing", [np.zeros(10), np.array([])], ids=["ties", "no query"])
def test_without_any_difference_there_is_nothing_to_test(nothing: np.ndarray) -> None:
    """Ten ties do not say that there are no others."""
    found = [p_value(test, nothing) for test in ("t-test", "wilcoxon", "randomisation")]
    assert all(map(math.isnan, [*found, *interval(nothing)]))
    assert cohens_d(np.zeros(10)) == 0


@pytest.mark.parametrize("count", [2, 3, 20])
def test_constant_difference_has_no_p_value(count: int) -> None:
    """t would be infinite, but two equal differences are no proof; signs alone say 2 of 2^n, and never 0."""
    constant = np.full(count, 0.1)
    assert math.isnan(p_value("t-test", constant))
    assert math.isnan(cohens_d(constant))
    assert all(map(math.isnan, interval(constant)))
    assert p_value("randomisation", constant) == pytest.approx(max(2 / 2**count, 2 / 10_001))


def test_cohens_d_is_mean_over_standard_deviation_and_gives_t() -> None:
    assert cohens_d(np.array([1.0, 2.0, 3.0])) == pytest.approx(2.0)
    difference = differences(*pairs(1, 50))
    t = cohens_d(difference) * math.sqrt(50)
    assert p_value("t-test", difference) == pytest.approx(2 * scipy.stats.t.sf(abs(t), 49))


def test_corrections_are_their_formulas() -> None:
    p = [0.01, 0.04, 0.03, 0.005]
    assert correct(p, "bonferroni") == pytest.approx([0.04, 0.16, 0.12, 0.02])
    # ascending: 4 · 0.005, 3 · 0.01, 2 · 0.03, 1 · 0.04 → 0.04 is raised to the 0.06 before it
    assert correct(p, "holm") == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert correct(p, "none").tolist() == p


@given(p_values, st.sampled_from(get_args(Correction)), st.randoms())
def test_undefined_p_values_stay_so_and_count_as_one(p: list[float], method: Correction, random: Random) -> None:
    corrected = correct(p, method)
    assert np.isnan(corrected).tolist() == [math.isnan(value) for value in p]
    ones = correct([1.0 if math.isnan(value) else value for value in p], method)
    np.testing.assert_array_equal(corrected[~np.isnan(corrected)], ones[~np.isnan(corrected)])
    order = list(range(len(p)))
    random.shuffle(order)
    np.testing.assert_array_equal(correct([p[i] for i in order], method), corrected[order])


def test_intervals_and_tests_ignore_the_order_of_queries() -> None:
    difference = differences(*pairs(3, 100))
    turned = difference[::-1]
    assert interval(turned) == pytest.approx(interval(difference), abs=1e-12)
    assert p_value("randomisation", turned) == p_value("randomisation", difference)
    narrow, wide = interval(difference, 0.8), interval(difference, 0.99)
    assert wide[0] < narrow[0] < difference.mean() < narrow[1] < wide[1]


@pytest.mark.parametrize("queries", [8, 30])
def test_intervals_of_few_queries_are_as_wide_as_those_of_t(queries: int) -> None:
    """A bootstrap without the factor sqrt(Q / (Q - 1)) is 7 % too narrow with 8 queries."""
    rng, ratios = np.random.default_rng(0), []
    for _ in range(40):
        difference = rng.normal(0.1, 0.2, queries)
        (low, high), expected = interval(difference), scipy.stats.ttest_1samp(difference, 0).confidence_interval()
        ratios.append((high - low) / (expected.high - expected.low))
    assert np.mean(ratios) == pytest.approx(1, abs=0.03)
