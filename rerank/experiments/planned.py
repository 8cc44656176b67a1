"""The comparisons that a configuration plans, and what came out of each: one family for the correction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rerank.evaluation import significance
from rerank.evaluation.crossed import Crossed, crossed_difference, paired, standard_error
from rerank.evaluation.significance import ROUNDING, AnyTest, Correction

Values = Mapping[str, np.ndarray]
"""Values per seed and query ``[S, Q]``, by measure."""

Pair = tuple[str, str]
"""A row and what it is compared with."""


@dataclass(frozen=True)
class PlannedComparison:
    """One row against another in one measure."""

    row: str  # of a group ``best of NAME``
    against: str
    measure: str
    methods: Pair  # the two rows compared: of groups, those that validation chose
    found: Crossed | None = None  # None where one of the two did not come out
    effect: float = math.nan
    counts: tuple[int, int, int] = (0, 0, 0)
    p: float = math.nan  # NaN where the test has nothing to go by, or nothing came out
    corrected: float = math.nan
    planned: int = 1  # comparisons that it is corrected for
    error: float = math.nan  # that the test has: over queries alone where it treats the seeds as fixed
    freedom: float = math.nan
    equivalent: float = math.nan  # p-value of a difference that is not within the margin, corrected

    @property
    def key(self) -> list[str]:
        """As a configuration names it."""
        return [self.row, self.against, self.measure]

    def finds(self, comparisons: int | None = None) -> float:
        """The smallest difference that would have been found, with the variances of this very pair; NaN where none."""
        count = comparisons or self.planned
        return significance.smallest_difference(self.error, self.freedom, count) if self.error > 0 else math.nan


def planned_pairs(rows: Sequence[str], baseline: str | None, every: bool) -> list[Pair]:
    """Every pair of rows, the later first; or every row with the baseline.

    >>> planned_pairs(["BM25", "hinge", "SmoothI"], None, every=True)
    [('hinge', 'BM25'), ('SmoothI', 'BM25'), ('SmoothI', 'hinge')]
    """
    if every:
        pairs = [(later, earlier) for earlier, later in itertools.combinations(rows, 2)]
        turned = [pair[::-1] if pair[0] == baseline else pair for pair in pairs]
        return sorted(turned, key=lambda pair: pair[1] != baseline) if baseline else turned
    return [(row, baseline) for row in rows if row != baseline] if baseline else []


def best_of(group: str) -> str:
    """The name of what validation chooses of a group."""
    return f"best of {group}"


def compare_all(
    values: Mapping[str, Values],
    pairs: Sequence[tuple[str, str, Pair]],
    measures: Sequence[str],
    test: AnyTest,
    correction: Correction,
    folds: np.ndarray | None = None,
    margin: float | None = None,
    primary: list[str] | None = None,
) -> list[PlannedComparison]:
    """Every planned comparison in every measure, of the names of both sides and the rows that they are.

    The correction is over all of them, those that did not come out included: they were planned. Only the primary one
    (row, against and measure) stands for itself.
    """
    compared = []
    for row, against, (ours, theirs) in pairs:
        for measure in measures:
            one = PlannedComparison(row, against, measure, (ours, theirs))
            if ours in values and theirs in values:
                one = _compared(one, *paired(values[ours][measure], values[theirs][measure], folds), test, margin)
            compared.append(one)
    family = np.array([one.key != primary for one in compared], dtype=bool)

    planned = int(family.sum())

    def corrected(values: list[float]) -> list[float]:
        p = np.array(values)
        p[family] = significance.correct(p[family], correction, planned=planned)
        return [float(value) for value in p]

    columns = corrected([one.p for one in compared]), corrected([one.equivalent for one in compared]), family
    return [
        replace(one, corrected=p, equivalent=within, planned=planned if together else 1)
        for one, p, within, together in zip(compared, *columns, strict=True)
    ]


def _compared(
    one: PlannedComparison, difference: np.ndarray, folds: np.ndarray, test: AnyTest, margin: float | None
) -> PlannedComparison:
    found = crossed_difference(difference, folds)
    over_seeds = difference.mean(axis=0)
    over_seeds = np.where(np.abs(over_seeds) < ROUNDING, 0.0, over_seeds)
    p, error, freedom = found.p, found.error, found.freedom
    if test != "bootstrap":
        p = significance.p_value(test, over_seeds)
        error, freedom = standard_error(over_seeds[None]) if len(over_seeds) > 1 else (math.nan, math.nan)
    return replace(
        one,
        found=found,
        effect=significance.cohens_d(over_seeds),
        counts=significance.wins_ties_losses(over_seeds),
        p=p,
        error=error,
        freedom=freedom,
        equivalent=math.nan if margin is None else significance.equivalence(found.mean, error, freedom, margin),
    )
