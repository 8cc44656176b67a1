"""Paired tests on per-query values, corrections for many comparisons, effect sizes and intervals.

Every function takes differences (run minus baseline, one per query) from :func:`rerank.evaluation.crossed.paired`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

Correction = Literal["none", "bonferroni", "holm"]
Test = Literal["bootstrap", "t-test", "wilcoxon", "randomisation"]
"""Tests; the bootstrap resamples seeds, too: see :mod:`rerank.evaluation.crossed`."""

TEST_NAMES: dict[Test, str] = {
    "bootstrap": "bootstrap over queries and seeds",
    "t-test": "paired t-test",
    "wilcoxon": "Wilcoxon signed-rank test",
    "randomisation": "randomisation test",
}

LEVEL = 0.95
"""Confidence level of intervals."""

SEED = 0
"""Seed of tests and intervals that draw random numbers."""

ROUNDING = 1e-12
"""Differences below this are rounding errors; measures are in [0, 1]."""

ALPHA = 0.05
"""Significance level."""


def p_value(test: Test, difference: np.ndarray, seed: int = SEED) -> float:
    """Compute the two-sided p-value of a test over queries.

    The Wilcoxon test leaves out ties. The randomisation test of the mean (Smucker et al. 2007) is exact for at most
    10,000 assignments of signs to the differences; otherwise that many are drawn, and the observed one counts as one
    more, so that p is never 0.

    Returns:
        The p-value; NaN for fewer than two queries, if every query is a tie, and for the t-test if all differences are
        equal: their variance is unknown, not 0.
    """
    if len(difference) < 2 or not difference.any():
        return float("nan")
    from scipy import stats

    if test == "wilcoxon":
        return float(stats.wilcoxon(difference.round(10)).pvalue)  # .3 - .2 and .2 - .1 share a rank
    if test == "randomisation":
        values = np.sort(difference)  # the order of queries has no influence
        options = {"permutation_type": "samples", "n_resamples": 10_000, "batch": max(1, 2_000_000 // len(values))}
        return float(stats.permutation_test((values,), np.mean, rng=seed, **options).pvalue)
    return float("nan") if difference.std(ddof=1) < ROUNDING else float(stats.ttest_1samp(difference, 0.0).pvalue)


def correct(p_values: Sequence[float] | np.ndarray, method: Correction = "none") -> np.ndarray:
    r"""Correct p-values for the number :math:`m` of comparisons, in their shape.

    NaN stays NaN, but counts as a comparison.

    Bonferroni: :math:`\min(1, m p)`. Holm: in ascending order, :math:`\max_{j \le i} \min(1, (m - j + 1) p_{(j)})`.
    """
    p = np.array(p_values, dtype=np.float64)
    if method == "bonferroni":
        p = np.minimum(1.0, p * len(p))
    elif method == "holm":
        order = np.argsort(p, kind="stable")  # NaN last
        p[order] = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    return p


def cohens_d(difference: np.ndarray) -> float:
    """Compute Cohen's d of paired values: the mean difference over the standard deviation of the differences.

    0 without any difference; NaN for fewer than two queries, or equal differences.
    """
    if len(difference) and not difference.any():
        return 0.0
    spread = difference.std(ddof=1) if len(difference) > 1 else 0.0
    return float(difference.mean() / spread) if spread >= ROUNDING else float("nan")
