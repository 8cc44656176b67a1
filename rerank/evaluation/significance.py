r"""Paired tests, effect sizes, and intervals over queries and seeds, which are both samples.

With :math:`d_{sq}` the difference of two methods for query :math:`q` (of :math:`Q`) and seed :math:`s` (of :math:`S`),

.. math::

    d_{sq} = \delta + a_s + b_q + e_{sq}, \qquad \hat\delta = \frac{1}{SQ}\sum_{s,q} d_{sq}, \qquad
    \widehat{\mathrm{Var}}(\hat\delta) = \underbrace{\frac{1}{Q(Q-1)}\sum_q (\bar d_{\cdot q} - \hat\delta)^2}_{V_q}
    + \underbrace{\frac{1}{S(S-1)}\sum_s (\bar d_{s\cdot} - \hat\delta)^2}_{V_s},

the two-way clustered variance (Cameron, Gelbach and Miller 2011) without the term that subtracts the share of
:math:`e_{sq}`, which it has twice: intervals are slightly too wide rather than too narrow.

With folds, each trained separately, :math:`V_s` is the sum over folds of
:math:`(Q_f/Q)^2 / (S(S-1)) \sum_s (\bar d_{sf} - \bar d_{\cdot f})^2`. With folds and one seed, folds are the
units, and the variance is that of their means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

Correction = Literal["none", "bonferroni", "holm"]
Test = Literal["bootstrap", "t-test", "wilcoxon", "randomisation"]
"""Tests; the bootstrap resamples seeds, too."""

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

RESAMPLES = 10_000
"""Resamples of the bootstrap."""


@dataclass(frozen=True)
class Crossed:
    """Mean difference over seeds and queries.

    Attributes:
        interval: confidence interval; NaN, like ``p`` and ``error``, for one query or if nothing varies.
        p: two-sided p-value; the interval of level ``1 - p`` ends at 0.
        error: standard error.
        freedom: degrees of freedom.
    """

    mean: float
    interval: tuple[float, float]
    p: float
    error: float
    freedom: float


def paired(run: np.ndarray, baseline: np.ndarray, folds: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return differences ``[S, Q]`` of values ``[S, Q]``, and the folds ``[Q]`` of the queries.

    A side with one row, such as the first stage, is paired with every row. Queries that either side leaves out (NaN)
    are left out; rounding errors become ties.
    """
    if len(run) != len(baseline) and 1 not in (len(run), len(baseline)):
        raise ValueError(f"seeds are paired: {len(run)} of one method, {len(baseline)} of the other")
    run, baseline = np.broadcast_arrays(run, baseline)
    known = ~np.isnan(run + baseline).any(axis=0)
    difference = (run - baseline)[:, known]
    difference = np.where(np.abs(difference) < ROUNDING, 0.0, difference)
    return difference, (np.zeros(len(known), dtype=int) if folds is None else folds)[known]


def standard_error(difference: np.ndarray, folds: np.ndarray | None = None) -> tuple[float, float]:
    r"""Compute the standard error of the mean of ``[S, Q]`` differences, and its degrees of freedom (Satterthwaite).

    With variances :math:`V_i` as above, of :math:`n_i` degrees of freedom: :math:`(\sum V_i)^2 / \sum (V_i^2 / n_i)`.
    """
    seeds, queries = difference.shape
    means, shares = _by_fold(difference, folds)
    if seeds == 1 and len(shares) > 1:
        return float(np.sqrt((_moves(difference, folds) ** 2).sum())), float(len(shares) - 1)
    parts = [(float(difference.mean(axis=0).var(ddof=1)) / queries, queries - 1)]
    if seeds > 1:
        within = (float(of.var(ddof=1)) for of in means)
        parts += [(share**2 * of / seeds, seeds - 1) for of, share in zip(within, shares, strict=True)]
    total = sum(part for part, _ in parts)
    spread = sum(part**2 / freedom for part, freedom in parts)
    return float(np.sqrt(total)), total**2 / spread if spread > 0 else float(queries - 1)


def _by_fold(difference: np.ndarray, folds: np.ndarray | None) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the means by seed ``[S]`` of each fold, and the folds' shares of the queries."""
    names, counts = np.unique(np.zeros(difference.shape[1]) if folds is None else folds, return_counts=True)
    parts = [difference.compress(folds == name, axis=1) for name in names] if len(names) > 1 else [difference]
    return [part.mean(axis=1) for part in parts], counts / counts.sum()


def _moves(difference: np.ndarray, folds: np.ndarray | None) -> np.ndarray:
    """Return each training's effect on the mean, scaled so that squares sum to the variance over trainings."""
    means, shares = _by_fold(difference, folds)
    if (seeds := len(difference)) > 1:
        scaled = [share * (of - of.mean()) for of, share in zip(means, shares, strict=True)]
        return np.concatenate(scaled) / np.sqrt(seeds * (seeds - 1))
    return shares * (np.concatenate(means) - difference.mean()) * np.sqrt(len(shares) / max(1, len(shares) - 1))


def crossed_difference(
    difference: np.ndarray,
    folds: np.ndarray | None = None,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Crossed:
    r"""Bootstrap the interval and p-value of a mean difference over queries and seeds.

    A resample draws :math:`Q` of the queries' means :math:`\bar d_{\cdot q}` with replacement; its distance from the
    mean is multiplied by :math:`\sqrt{Q/(Q-1)}`, since a bootstrap has only :math:`(Q-1)/Q` of :math:`V_q`. Seeds (by
    fold) are too few to resample; they add
    :math:`\sum_s g_s (\bar d_{s\cdot} - \hat\delta) / \sqrt{S(S-1)}` with :math:`g_s \sim N(0, 1)`. The percentile
    interval is stretched by the ratio of Student's quantile to the normal's (both corrections: Hesterberg 2015). p is
    at least one over the number of resamples. The order of queries has no influence.

    >>> found = crossed_difference(np.array([[0.1, 0.3, 0.2, 0.2], [0.2, 0.4, 0.3, 0.3]]))
    >>> round(found.mean, 4), found.interval[0] < 0.25 < found.interval[1]
    (0.25, True)
    """
    from scipy.stats import bootstrap

    seeds, queries = difference.shape
    nan = float("nan")
    shares = _by_fold(difference, folds)[1] if queries else np.ones(1)
    mean = float(difference.mean()) if queries else nan
    nothing = Crossed(mean, (nan, nan), nan, nan, nan)
    if queries < 2:
        return nothing
    error, freedom = standard_error(difference, folds)
    if error < ROUNDING:
        return nothing
    rng = np.random.default_rng(seed)
    drawn = np.zeros(resamples)
    if seeds > 1 or len(shares) == 1:
        by_query = np.sort(difference.mean(axis=0))
        batch = max(1, 2_000_000 // queries)
        found = bootstrap((by_query,), np.mean, n_resamples=resamples, batch=batch, method="percentile", rng=rng)
        drawn += np.sqrt(queries / (queries - 1)) * (found.bootstrap_distribution - by_query.mean())
    if seeds > 1 or len(shares) > 1:
        moves = _moves(difference, folds)
        drawn += rng.standard_normal((resamples, len(moves))) @ moves
    drawn.sort()
    interval, p = _ends(drawn, mean, freedom, 1 - level), _p(drawn, mean, freedom)
    return replace(nothing, interval=interval, p=p, error=error, freedom=freedom)


def _ends(drawn: np.ndarray, mean: float, freedom: float, alpha: float) -> tuple[float, float]:
    """Compute the interval of level ``1 - alpha`` from sorted deviations from the mean."""
    from scipy.special import ndtri, stdtrit

    stretch = float(stdtrit(freedom, alpha / 2) / ndtri(alpha / 2))
    places = np.array([alpha / 2, 1 - alpha / 2]) * (len(drawn) - 1)
    low, high = np.interp(places, np.arange(len(drawn)), drawn) * stretch
    return mean + float(low), mean + float(high)


def _p(drawn: np.ndarray, mean: float, freedom: float) -> float:
    """Find the smallest alpha whose interval excludes 0, by bisection."""
    low, high = 1 / len(drawn), 1 - 1e-9
    for _ in range(40):
        middle = np.sqrt(low * high)
        ends = _ends(drawn, mean, freedom, middle)
        if ends[0] <= 0 <= ends[1]:
            low = middle
        else:
            high = middle
    return float(high)


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
