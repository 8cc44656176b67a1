r"""Differences of several collections as one: a random-effects meta-analysis.

Collections differ in how much a method helps. With :math:`y_i` the difference on collection :math:`i` of :math:`k` and
:math:`v_i` its squared standard error, :math:`y_i \sim N(\mu, v_i + \tau^2)`. :math:`\tau^2` is estimated by restricted
maximum likelihood; Paule and Mandel's (1982) estimate tells whether much hangs on that (Veroniki et al. 2016 recommend
both). The interval of :math:`\mu` is Hartung and Knapp's (2001) and Sidik and Jonkman's (2002), which holds its
level with few collections where the classic one does not (IntHout, Ioannidis and Borm 2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rerank.evaluation.crossed import Crossed

Estimator = Literal["REML", "Paule-Mandel"]

LEVEL = 0.95
"""Confidence level of intervals."""


@dataclass(frozen=True)
class RandomEffects:
    """A mean difference over collections.

    Attributes:
        tau: standard deviation of the true difference over collections; NaN with one.
        heterogeneity: I², the share of the variance between the collections' differences that chance does not explain.
        prediction: an interval for the true difference on another such collection; NaN with fewer than three.
    """

    mean: float
    interval: tuple[float, float]
    p: float
    error: float
    freedom: float
    tau: float
    heterogeneity: float
    prediction: tuple[float, float]
    weights: tuple[float, ...]


def single(found: Crossed) -> RandomEffects:
    """The difference of one collection, with its own interval and p-value."""
    nan = math.nan
    return RandomEffects(
        found.mean, found.interval, found.p, found.error, found.freedom, nan, nan, (nan, nan), weights=(1.0,)
    )


def random_effects(
    differences: Sequence[float], errors: Sequence[float], estimator: Estimator = "REML"
) -> RandomEffects:
    r"""Pool the differences of two collections or more.

    With :math:`w_i = 1 / (v_i + \tau^2)` and :math:`\hat\mu = \sum_i w_i y_i / \sum_i w_i`, REML's :math:`\tau^2 \ge 0`
    has the greatest

    .. math::

        -\frac12 \Bigl(\sum_i \log(v_i + \tau^2) + \log \sum_i w_i + \sum_i w_i (y_i - \hat\mu)^2\Bigr),

    Paule and Mandel's solves :math:`\sum_i w_i (y_i - \hat\mu)^2 = k - 1` (0 where that is less even with 0). Then

    .. math::

        q = \max\Bigl(1, \frac{1}{k - 1} \sum_i w_i (y_i - \hat\mu)^2\Bigr), \quad
        \hat\mu \pm t_{k - 1} \sqrt{q / \textstyle\sum_i w_i}, \quad
        I^2 = \frac{\tau^2}{\tau^2 + \bar v}, \quad
        \bar v = \frac{(k - 1) \sum_i 1/v_i}{(\sum_i 1/v_i)^2 - \sum_i 1/v_i^2}.

    The 1 in :math:`q` is Knapp and Hartung's (2003) guard against intervals that are narrow by chance; :math:`I^2` is
    Higgins and Thompson's (2002). The prediction interval is Higgins, Thompson and Spiegelhalter's (2009),
    :math:`\hat\mu \pm t_{k - 2} \sqrt{\tau^2 + q / \sum_i w_i}`.

    Raises:
        ValueError: fewer than two differences, not as many errors, or one that is not above 0.

    >>> found = random_effects([0.1, 0.3], [0.1, 0.1])  # equal errors: tau² is the variance of both, less 0.1²
    >>> round(found.mean, 4), round(found.tau, 4), round(found.heterogeneity, 4)
    (0.2, 0.1, 0.5)
    """
    from scipy.stats import t

    y, v = np.asarray(differences, dtype=np.float64), np.asarray(errors, dtype=np.float64) ** 2
    count = len(y)
    if count < 2 or y.shape != v.shape or not ((v > 0) & np.isfinite(y + v)).all():
        raise ValueError("two differences or more are needed, and as many standard errors above 0")
    tau2 = _tau2(y, v, estimator)
    weights, mean, spread = _weighted(y, v, tau2)
    error = float(np.sqrt(max(1.0, spread / (count - 1)) / weights.sum()))
    half = error * float(t.ppf((1 + LEVEL) / 2, count - 1))
    prediction = math.nan, math.nan
    if count > 2:
        wide = float(t.ppf((1 + LEVEL) / 2, count - 2) * np.sqrt(tau2 + error**2))
        prediction = mean - wide, mean + wide
    fixed = 1 / v
    typical = (count - 1) * fixed.sum() / (fixed.sum() ** 2 - (fixed**2).sum())
    return RandomEffects(
        mean=mean,
        interval=(mean - half, mean + half),
        p=2 * float(t.sf(abs(mean) / error, count - 1)),
        error=error,
        freedom=count - 1,
        tau=float(np.sqrt(tau2)),
        heterogeneity=float(tau2 / (tau2 + typical)),
        prediction=prediction,
        weights=tuple((weights / weights.sum()).tolist()),
    )


def _weighted(y: np.ndarray, v: np.ndarray, tau2: float) -> tuple[np.ndarray, float, float]:
    """Weights, the mean by them, and the weighted sum of squares around it."""
    weights = 1 / (v + tau2)
    mean = float((weights * y).sum() / weights.sum())
    return weights, mean, float((weights * (y - mean) ** 2).sum())


def _tau2(y: np.ndarray, v: np.ndarray, estimator: Estimator) -> float:
    """The variance between collections, no larger than the squared range of the differences."""
    from scipy.optimize import brentq, minimize_scalar

    highest = float(np.ptp(y)) ** 2
    if estimator == "Paule-Mandel":

        def excess(tau2: float) -> float:
            return _weighted(y, v, tau2)[2] - (len(y) - 1)

        return 0.0 if excess(0) <= 0 else float(brentq(excess, 0, highest, xtol=1e-300, rtol=1e-12))

    def loss(tau2: float) -> float:
        weights, _, spread = _weighted(y, v, tau2)
        return float(spread + np.log(weights.sum()) - np.log(weights).sum())

    places = highest * np.linspace(0, 1, 201) ** 2  # the likelihood may have several maxima
    best = int(np.argmin([loss(place) for place in places]))
    ends = places[max(0, best - 1)], places[min(200, best + 1)]
    found = float(minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-9 * highest}).x)
    return found if loss(found) < loss(0) - 1e-12 else 0.0
