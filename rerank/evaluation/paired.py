"""Compare one ranking with another, such as the first stage, query by query."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rerank.evaluation.significance import (
    ROUNDING,
    Correction,
    Test,
    cohens_d,
    correct,
    crossed_difference,
    p_value,
    paired,
)


@dataclass(frozen=True)
class Comparison:
    """Means of two rankings in one measure, and their paired difference.

    Attributes:
        ours: mean of ``run``; NaN, like all other numbers, if one of the two was not measured.
        theirs: mean of ``against``.
        difference: ours minus theirs.
        interval: 95 % bootstrap interval over queries (and seeds); None for one query, or equal differences.
        error: standard error of the difference.
        queries: number of queries that both have.
        cohens_d: Cohen's d over queries, like the counts, of means over seeds.
        counts: numbers of queries with a higher, equal and lower value.
        p: p-value; NaN if the test is undefined.
        p_corrected: p-value corrected for all comparisons of a table.
    """

    run: str
    against: str
    measure: str
    ours: float = math.nan
    theirs: float = math.nan
    difference: float = math.nan
    interval: tuple[float, float] | None = None
    error: float = math.nan
    queries: int = 0
    cohens_d: float = math.nan
    counts: tuple[int, int, int] = (0, 0, 0)
    p: float = math.nan
    p_corrected: float = math.nan

    @property
    def verdict(self) -> str:
        """Interpretation of the interval; empty without one."""
        if self.interval is None:
            return "no difference" if self.queries > 1 and self.difference == 0 else ""
        return verdict(self.interval)

    def __str__(self) -> str:
        """Format the numbers and their interpretation.

        >>> print(Comparison("ours", "bm25", "AP", 0.588, 0.569, 0.019, (-0.02, 0.06), queries=300))
        AP 0.5880, bm25 0.5690, difference +0.0190 [-0.0200, +0.0600] (95 % interval, 300 queries): too close to call
        """
        interval = "" if self.interval is None else "95 % interval, "
        return (
            f"{self.measure} {self.ours:.4f}, {self.against} {self.theirs:.4f}, "
            f"difference {shown_difference(self.difference, self.interval)} "
            f"({interval}{self.queries} quer{'y' if self.queries == 1 else 'ies'})"
        ) + (f": {self.verdict}" if self.verdict else "")


def verdict(interval: Sequence[float] | None) -> str:
    """Interpret the interval of a difference; empty without one."""
    if interval is None:
        return ""
    low, high = interval
    return "better" if low > 0 else "worse, do not use it as it is" if high < 0 else "too close to call"


def shown_difference(difference: float, interval: Sequence[float | None] | None) -> str:
    """Format a difference and its interval, if any."""
    ends = [end for end in interval or () if end is not None]
    return f"{difference:+.4f}" + (" [{:+.4f}, {:+.4f}]".format(*ends) if ends else "")


def compare_values(
    names: tuple[str, str],
    measure: str,
    ours: np.ndarray,
    theirs: np.ndarray,
    test: Test = "bootstrap",
    folds: np.ndarray | None = None,
) -> Comparison:
    """Compare values ``[S, Q]``, a row per seed, with others; a side with one row is paired with every row.

    >>> found = compare_values(("ours", "bm25"), "nDCG@10", np.array([[0.5, 0.25]]), np.array([[0.5, 0.75]]))
    >>> found.ours, found.theirs, found.difference, found.counts
    (0.375, 0.625, -0.25, (0, 1, 1))

    Args:
        names: names of the two.
        measure: name of the measure.
        ours: values of the first, ``[S, Q]``; NaN for a query that is left out.
        theirs: values of the other.
        test: the test of p; ``bootstrap`` resamples queries and seeds, the others test means over seeds.
        folds: fold of each query, ``[Q]``, if each was trained separately.
    """
    difference, folds = paired(ours, theirs, folds)
    if not difference.size:
        return Comparison(*names, measure)
    found = crossed_difference(difference, folds)
    over_seeds = difference.mean(axis=0)
    over_seeds = np.where(np.abs(over_seeds) < ROUNDING, 0.0, over_seeds)
    return Comparison(
        *names,
        measure,
        float(np.nanmean(ours)),
        float(np.nanmean(theirs)),
        found.mean,
        None if math.isnan(found.error) else found.interval,
        found.error,
        difference.shape[1],
        cohens_d(over_seeds),
        (int((over_seeds > 0).sum()), int((over_seeds == 0).sum()), int((over_seeds < 0).sum())),
        found.p if test == "bootstrap" else p_value(test, over_seeds),
    )


def corrected(comparisons: Sequence[Comparison], correction: Correction) -> list[Comparison]:
    """Correct the p-values for the number of comparisons, undefined ones included."""
    p = correct([one.p for one in comparisons], correction).tolist()
    return [replace(one, p_corrected=value) for one, value in zip(comparisons, p, strict=True)]
