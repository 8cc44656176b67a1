r"""How far scores are from probabilities, and what makes them some.

:math:`p = \sigma(a s + b)` by maximum likelihood (Platt 1999, without his smoothed targets). What is reported is
cross-fitted: of each candidate with the a, b and thresholds of the folds that its query is not in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rerank.errors import UserError
from rerank.evaluation.crossed import RESAMPLES, resampled
from rerank.settings.ranges import Positive, check_arguments

PRECISIONS = (0.5, 0.8, 0.9)
"""Precisions that thresholds promise."""

DOUBT = 0.05
"""Probability with which a promised precision may be wrong."""

START = 16
"""Candidates above the first cut that is tested."""

BINS = 10
"""Of equal width, of the reliability curve and the expected calibration error."""


def sigmoid(x: np.ndarray) -> np.ndarray:
    """The logistic function, without overflow."""
    return np.exp(-np.logaddexp(0.0, -x))


def mean_log_loss(logits: np.ndarray, relevant: np.ndarray) -> float:
    """Of the logits of candidates, and which of them are relevant."""
    return float(np.logaddexp(0.0, np.where(relevant, -logits, logits)).mean())


@dataclass(frozen=True)
class Calibration:
    """How scores become probabilities: they are multiplied by a, above 0, so that the order stays, and b is added."""

    a: Positive
    b: float
    grade: int
    n: int

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Self:
        """Read what a contract says."""
        given: dict[str, Any] = {name: saved.get(name) for name in ("a", "b", "grade", "n")}
        check_arguments(cls, given)
        return cls(**given)

    def __call__(self, scores: np.ndarray | float) -> np.ndarray:
        """Probabilities ``[n]`` float64 of raw scores ``[n]``, in the same order.

        >>> Calibration(2.0, -1.0, 1, 100)(np.array([0.5, 1.0])).round(4).tolist()
        [0.5, 0.7311]
        """
        return sigmoid(self.a * np.asarray(scores, dtype=np.float64) + self.b)


@dataclass(frozen=True)
class Quality:
    """How far probabilities are from what is so, a mean over candidates.

    Attributes:
        ece: of ten bins of equal width the difference between mean probability and share of relevant ones, weighted by
            their candidates.
    """

    log_loss: float
    brier: float
    ece: float

    @classmethod
    def of(cls, logits: np.ndarray, relevant: np.ndarray) -> Quality:
        """The quality of logits ``[n]``, of candidates that are relevant or not, ``[n]`` bool.

        >>> Quality.of(np.zeros(4), np.array([True, False, True, False])).brier
        0.25
        """
        probabilities = sigmoid(logits)
        off = sum(bin.count * abs(bin.probability - bin.relevant) for bin in curve(probabilities, relevant))
        brier = float(((probabilities - relevant) ** 2).mean())
        return cls(mean_log_loss(logits, relevant), brier, float(off / len(logits)))


@dataclass(frozen=True)
class Bin:
    """Candidates of about the same probability."""

    low: float
    high: float
    count: int
    probability: float
    relevant: float


def curve(probabilities: np.ndarray, relevant: np.ndarray) -> list[Bin]:
    """The reliability curve: bins of equal width that have a candidate."""
    of = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
    bins = []
    for number in np.unique(of).tolist():
        own = of == number
        means = float(probabilities[own].mean()), float(relevant[own].mean())
        bins.append(Bin(number / BINS, (number + 1) / BINS, int(own.sum()), *means))
    return bins


@dataclass(frozen=True)
class Found:
    """The precision of what is above a threshold.

    Attributes:
        precision: the share of relevant ones among what is above; None where nothing is.
        low: where its 95 % interval begins, by a bootstrap over queries; None with fewer than two of them.
    """

    precision: float | None
    low: float | None
    high: float | None
    count: int
    recall: float

    @classmethod
    def of(cls, above: np.ndarray, relevant: np.ndarray, query: np.ndarray) -> Found:
        """Count what is above ``[n]`` bool, of candidates of these queries ``[n]``."""
        count, recall = int(above.sum()), float((above & relevant).sum() / relevant.sum())
        if not count:
            return cls(None, None, None, 0, recall)
        of = np.unique(query, return_inverse=True)[1]
        pairs = np.stack([np.bincount(of, above & relevant), np.bincount(of, above)], axis=1)
        precision = float(relevant[above].mean())
        if int((pairs[:, 1] > 0).sum()) < 2:
            return cls(precision, None, None, count, recall)
        hits, all_above = resampled(pairs, RESAMPLES, np.random.default_rng(0)).T
        low, high = np.quantile(hits[all_above > 0] / all_above[all_above > 0], [0.025, 0.975]).tolist()
        return cls(precision, low, high, count, recall)


def fitted(scores: np.ndarray, relevant: np.ndarray) -> tuple[float, float]:
    """The a and b of maximum likelihood, by Newton's method."""
    ours, others = scores[relevant], scores[~relevant]
    if not len(ours) or not len(others):
        what = "relevant" if not len(ours) else "other"
        raise UserError(f"lists: have no {what} candidate to fit on (with --grade); give more lists")
    if ours.min() >= others.max() or others.min() >= ours.max():
        raise UserError(
            "lists: the scores part relevant candidates from the others completely, so that any slope fits; give more"
        )
    center, spread = scores.mean(), scores.std()
    x = np.stack([(scores - center) / spread, np.ones(len(scores))], axis=1)

    weights = np.array([0.0, np.log(len(ours) / len(others))])
    for _ in range(100):
        p = sigmoid(x @ weights)
        gradient = x.T @ (p - relevant) / len(x)
        if np.abs(gradient).max() < 1e-12:
            break
        step = np.linalg.solve((x.T * (p * (1 - p))) @ x / len(x), gradient)
        loss = mean_log_loss(x @ weights, relevant)
        while mean_log_loss(x @ (weights - step), relevant) > loss + 1e-12 and np.abs(step).max() > 1e-12:
            step = step / 2
        weights = weights - step
    a = float(weights[0] / spread)
    if not a > 0:
        raise UserError("lists: a higher score does not mean more relevant ones here; there is nothing to calibrate")
    return a, float(weights[1] - a * center)


def threshold(scores: np.ndarray, relevant: np.ndarray, query: np.ndarray, precision: float) -> float | None:
    r"""The lowest score above which, itself included, so large a share can be promised to be relevant.

    A cut passes where a share like the one above it has a probability of at most :math:`\delta` if the true one is
    lower (Clopper and Pearson 1934). Candidates of one query resemble each other, so those above count as
    :math:`(\sum_q m_q)^2 / \sum_q m_q^2`, as many as if the :math:`m_q` of a query were all alike (Kish 1965). The
    lowest of many cuts that happen to pass would promise too much: they are tested in a fixed order instead, from the
    highest 16, 64, 256, … candidates downwards, until one fails, with the confidence divided by the number of these
    starts (Angelopoulos et al. 2021, "Learn then Test", arXiv 2110.01052). That any cut which is passed has a lower
    precision, among queries like these, then has a probability of at most :math:`\delta = 0.05`. None where no share so
    large can be promised.

    >>> scores = np.arange(100.0, 0.0, -1.0)
    >>> threshold(scores, scores > 60, np.arange(100), 0.5)  # 40 of 63 would be luck in 2.1 % of cases, of 64 in 3.0 %
    38.0
    """
    import pandas as pd
    from scipy.special import betainc

    order = np.argsort(-scores, kind="stable")
    ranked, of = scores[order], query[order]
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # equal scores are above together
    before = pd.Series(of).groupby(of).cumcount().to_numpy()  # of the same query
    count = last + 1.0
    units = count**2 / np.cumsum(2 * before + 1)[last]
    hits = np.maximum(np.cumsum(relevant[order])[last] / count * units, 1e-300)
    sizes = np.array([START * 4**power for power in range(20) if START * 4**power <= len(of)])
    starts = np.searchsorted(count, sizes).tolist()
    passed = betainc(hits, units - hits + 1, precision) <= DOUBT / max(len(starts), 1)
    failed = np.flatnonzero(np.append(~passed, True))
    lowest = max((failed[np.searchsorted(failed, start)] for start in starts if passed[start]), default=0)
    return float(ranked[last[lowest - 1]]) if lowest else None


def cross_fitted(
    scores: np.ndarray, relevant: np.ndarray, query: np.ndarray, fold: np.ndarray
) -> tuple[np.ndarray, dict[float, np.ndarray]]:
    """Logits ``[n]`` by what was fitted on the other folds; by precision which candidates are above, ``[n]`` bool."""
    logits, above = np.empty(len(scores)), {precision: np.zeros(len(scores), dtype=bool) for precision in PRECISIONS}
    for number in np.unique(fold):
        own, others = fold == number, fold != number
        a, b = fitted(scores[others], relevant[others])
        logits[own] = a * scores[own] + b
        for precision in PRECISIONS:
            least = threshold(scores[others], relevant[others], query[others], precision)
            above[precision][own] = False if least is None else scores[own] >= least
    return logits, above
