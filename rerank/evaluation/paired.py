"""Compare one ranking with another, such as the first stage, in one line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ir_measures import Measure

from rerank.evaluation.crossed import crossed_difference, paired
from rerank.evaluation.measures import COUNTS, Evaluator, Qrels, Run, parse_measures


@dataclass(frozen=True)
class PairedDifference:
    """Means of a ranking and of another, such as the first stage, and their paired difference.

    Attributes:
        interval: 95 % bootstrap interval over queries (and seeds); None for one query, or equal differences.
    """

    measure: str
    ours: float
    first: float
    difference: float
    interval: tuple[float, float] | None
    queries: int
    against: str = "first stage"

    @property
    def verdict(self) -> str:
        """Interpretation of the interval; empty without one."""
        if self.interval is None:
            return "no difference" if self.queries > 1 and self.difference == 0 else ""
        low, high = self.interval
        return "better" if low > 0 else "worse, do not use it as it is" if high < 0 else "too close to call"

    @property
    def shown(self) -> str:
        return shown_difference(self.difference, self.interval)

    def __str__(self) -> str:
        """Format the numbers and their interpretation.

        >>> print(PairedDifference("AP", 0.588, 0.569, 0.019, (-0.02, 0.06), 300, "bm25"))
        AP 0.5880, bm25 0.5690, difference +0.0190 [-0.0200, +0.0600] (95 % interval, 300 queries): too close to call
        """
        interval = "" if self.interval is None else "95 % interval, "
        return (
            f"{self.measure} {self.ours:.4f}, {self.against} {self.first:.4f}, difference {self.shown} "
            f"({interval}{self.queries} quer{'y' if self.queries == 1 else 'ies'})"
        ) + (f": {self.verdict}" if self.verdict else "")


def shown_difference(difference: float, interval: Sequence[float | None] | None) -> str:
    """Format a difference and its interval, if any."""
    ends = [end for end in interval or () if end is not None]
    return f"{difference:+.4f}" + (" [{:+.4f}, {:+.4f}]".format(*ends) if ends else "")


def paired_difference(
    ours: np.ndarray, first: np.ndarray, measure: str, against: str = "first stage", folds: np.ndarray | None = None
) -> PairedDifference | None:
    """Compare values ``[S, Q]``, a row per seed, with others ``[1, Q]``; None if no query has both.

    >>> found = paired_difference(np.array([[0.5, 0.25]]), np.array([[0.5, 0.75]]), "nDCG@10")
    >>> found.ours, found.first, found.difference
    (0.375, 0.625, -0.25)
    """
    difference, folds = paired(ours, first, folds)
    if not difference.size:
        return None
    found = crossed_difference(difference, folds)
    means = float(np.nanmean(ours)), float(np.nanmean(first))
    interval = None if math.isnan(found.error) else found.interval
    return PairedDifference(measure, *means, found.mean, interval, found.queries, against)


def run_difference(
    run: Run, first: Run, qrels: Qrels, measure: str | Measure, against: str = "first stage"
) -> PairedDifference | None:
    """Compare a ranking with another; None for a count, such as NumRet."""
    measure = parse_measures(measure)[0]
    if measure.NAME in COUNTS:
        return None
    values = Evaluator(qrels, measure)
    ours, theirs = values(run, "the ranking").values, values(first, against).values
    return paired_difference(ours, theirs, str(measure), against)
