r"""Differences of several collections as one: a random-effects meta-analysis.

Collections differ in how much a method helps. With :math:`y_i` the difference on collection :math:`i` of :math:`k` and
:math:`v_i` its squared standard error, :math:`y_i \sim N(\mu, v_i + \tau^2)`. :math:`\tau^2` is DerSimonian and Laird's
(1986); the interval of :math:`\mu` is Hartung and Knapp's (2001) and Sidik and Jonkman's (2002), which holds its level
with few collections where the classic one does not (IntHout, Ioannidis and Borm 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RandomEffects:
    """A mean difference over collections.

    Attributes:
        mean: the mean difference.
        interval: its confidence interval.
        p: its two-sided p-value.
        error: its standard error.
        tau: standard deviation of the true difference over collections.
        heterogeneity: I², the share of the variance between the collections' differences that chance does not explain.
        prediction: an interval for the true difference on another such collection; NaN with fewer than three.
        weights: the collections' shares of the mean.
    """

    mean: float
    interval: tuple[float, float]
    p: float
    error: float
    tau: float
    heterogeneity: float
    prediction: tuple[float, float]
    weights: tuple[float, ...]


def random_effects(differences: Sequence[float], errors: Sequence[float], level: float = 0.95) -> RandomEffects:
    r"""Pool differences.

    .. math::

        w_i = 1 / v_i, \quad Q = \sum_i w_i (y_i - \bar y_w)^2, \quad
        \tau^2 = \max\Bigl(0, \frac{Q - (k - 1)}{\sum_i w_i - \sum_i w_i^2 / \sum_i w_i}\Bigr), \quad
        I^2 = \max(0, 1 - (k - 1)/Q),

        w^*_i = 1 / (v_i + \tau^2), \quad \hat\mu = \frac{\sum_i w^*_i y_i}{\sum_i w^*_i}, \quad
        q = \max\Bigl(1, \frac{1}{k - 1} \sum_i w^*_i (y_i - \hat\mu)^2\Bigr), \quad
        \hat\mu \pm t_{k - 1} \sqrt{q / \textstyle\sum_i w^*_i}.

    The 1 in :math:`q` is Knapp and Hartung's (2003) guard against intervals that are narrow by chance. The prediction
    interval is :math:`\hat\mu \pm t_{k - 2} \sqrt{\tau^2 + q / \sum_i w^*_i}` (Higgins, Thompson and Spiegelhalter
    2009).

    Args:
        differences: one per collection.
        errors: their standard errors, above 0.
        level: confidence level of both intervals.

    Raises:
        ValueError: no difference, not as many errors, or one that is not above 0.

    >>> found = random_effects([0.1, 0.3], [0.1, 0.1])  # Q = 2, C = 100: tau² = 0.01
    >>> round(found.mean, 4), round(found.tau, 4), round(found.heterogeneity, 4)
    (0.2, 0.1, 0.5)
    """
    from scipy.stats import t

    y, v = np.asarray(differences, dtype=np.float64), np.asarray(errors, dtype=np.float64) ** 2
    count = len(y)
    if not count or y.shape != v.shape or not (v > 0).all():
        raise ValueError("as many standard errors above 0 are needed as there are differences, and at least one")
    nan = float("nan")
    if count == 1:
        from scipy.stats import norm

        error = float(np.sqrt(v[0]))
        half = error * float(norm.ppf((1 + level) / 2))
        p = 2 * float(norm.sf(abs(y[0]) / error))
        return RandomEffects(
            float(y[0]), (float(y[0] - half), float(y[0] + half)), p, error, 0.0, nan, (nan, nan), (1.0,)
        )
    fixed = 1 / v
    total = fixed.sum()
    spread = float((fixed * (y - (fixed * y).sum() / total) ** 2).sum())
    tau2 = max(0.0, (spread - (count - 1)) / float(total - (fixed**2).sum() / total))
    weights = 1 / (v + tau2)
    mean = float((weights * y).sum() / weights.sum())
    scale = max(1.0, float((weights * (y - mean) ** 2).sum()) / (count - 1))
    error = float(np.sqrt(scale / weights.sum()))
    half = error * float(t.ppf((1 + level) / 2, count - 1))
    prediction = nan, nan
    if count > 2:
        wide = float(t.ppf((1 + level) / 2, count - 2) * np.sqrt(tau2 + error**2))
        prediction = mean - wide, mean + wide
    return RandomEffects(
        mean=mean,
        interval=(mean - half, mean + half),
        p=2 * float(t.sf(abs(mean) / error, count - 1)),
        error=error,
        tau=float(np.sqrt(tau2)),
        heterogeneity=max(0.0, 1 - (count - 1) / spread) if spread > 0 else 0.0,
        prediction=prediction,
        weights=tuple((weights / weights.sum()).tolist()),
    )
