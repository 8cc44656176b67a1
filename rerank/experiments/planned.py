"""The comparisons that a configuration plans, and what came out of each: one family for the correction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rerank.evaluation import significance
from rerank.evaluation.crossed import Crossed, crossed_difference, paired
from rerank.evaluation.significance import ROUNDING, AnyTest, Correction

Values = Mapping[str, np.ndarray]
"""Values per seed and query ``[S, Q]``, by measure."""

Pair = tuple[str, str]
"""A row and what it is compared with."""


@dataclass(frozen=True)
class PlannedComparison:
    """One row against another in one measure."""

    row: str
    against: str
    measure: str
    found: Crossed | None = None  # None where one of the two did not come out
    effect: float = math.nan
    counts: tuple[int, int, int] = (0, 0, 0)
    p: float = math.nan  # NaN where the test has nothing to go by, or nothing came out
    corrected: float = math.nan
    planned: int = 1  # comparisons that it is corrected for


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


def compare_all(
    values: Mapping[str, Values],
    pairs: Sequence[Pair],
    measures: Sequence[str],
    test: AnyTest,
    correction: Correction,
    folds: np.ndarray | None = None,
) -> list[PlannedComparison]:
    """Compare pairs of rows in every measure.

    The correction is over all of them, those that did not come out included: they were planned.
    """
    compared = []
    for row, against in pairs:
        for measure in measures:
            one = PlannedComparison(row, against, measure)
            if row in values and against in values:
                one = _compared(one, *paired(values[row][measure], values[against][measure], folds), test)
            compared.append(one)
    corrected = significance.correct([one.p for one in compared], correction, planned=len(compared))
    return [replace(one, corrected=float(p), planned=len(compared)) for one, p in zip(compared, corrected, strict=True)]


def _compared(one: PlannedComparison, difference: np.ndarray, folds: np.ndarray, test: AnyTest) -> PlannedComparison:
    found = crossed_difference(difference, folds)
    over_seeds = difference.mean(axis=0)
    over_seeds = np.where(np.abs(over_seeds) < ROUNDING, 0.0, over_seeds)
    return replace(
        one,
        found=found,
        effect=significance.cohens_d(over_seeds),
        counts=significance.wins_ties_losses(over_seeds),
        p=found.p if test == "bootstrap" else significance.p_value(test, over_seeds),
    )
