"""A ranking beside the first stage that it reranks: the last lines of whatever trains, reranks or compares."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from ir_measures import Measure

from rerank.evaluation.crossed import crossed_difference, paired
from rerank.evaluation.measures import COUNTS, Evaluator, Qrels, Run, parse_measures


@dataclass(frozen=True)
class Beside:
    """What a ranking is worth, and its first stage.

    Attributes:
        measure: the measure.
        ours: mean of the ranking.
        first: mean of the first stage.
        difference: mean of the differences per query.
        interval: its 95 % interval by a bootstrap over queries (and seeds).
        queries: how many queries.
    """

    measure: str
    ours: float
    first: float
    difference: float
    interval: tuple[float, float]
    queries: int


def beside(ours: np.ndarray, first: np.ndarray, measure: str) -> Beside | None:
    """Compare values per query; None where the two share no query that has a value.

    Args:
        ours: ``[S, Q]`` of the ranking, a row per seed.
        first: ``[1, Q]`` of the first stage.
        measure: what they are values of.

    >>> found = beside(np.array([[0.5, 0.25]]), np.array([[0.5, 0.75]]), "nDCG@10")
    >>> found.ours, found.first, found.difference
    (0.375, 0.625, -0.25)
    """
    difference = paired(ours, first)
    if not difference.size:
        return None
    found = crossed_difference(difference)
    means = float(np.nanmean(ours)), float(np.nanmean(first))
    return Beside(measure, *means, found.mean, found.interval, found.queries)


def beside_first_stage(run: Run, first: Run, qrels: Qrels, measure: str | Measure) -> Beside | None:
    """Compare a ranking with its first stage's; None for a measure that says nothing about quality."""
    measure = parse_measures(measure)[0]
    if measure.NAME in COUNTS:
        return None
    values = Evaluator(qrels, measure)
    ours, theirs = values(run, "the ranking").values, values(first, "the first stage").values
    return beside(ours, theirs, str(measure))


def sentences(found: Beside, where: str, what: str = "the model") -> Iterator[str]:
    """The comparison in sentences: the numbers and, if reranking makes things worse, a plain warning.

    Args:
        found: the comparison.
        where: what was ranked, such as ``test``.
        what: what ranked it.

    >>> for line in sentences(Beside("nDCG@10", 0.588, 0.769, -0.181, (-0.21, -0.15), 300), "test"):
    ...     print(line)
    test: nDCG@10 0.5880, first stage 0.7690, difference -0.1810 [-0.2100, -0.1500] (95 % interval, 300 queries)
    test: the model ranks worse than the first stage that it reranks: do not use it as it is
    """
    low, high = found.interval
    interval = "" if math.isnan(low) else f" [{low:+.4f}, {high:+.4f}]"
    yield (
        f"{where}: {found.measure} {found.ours:.4f}, first stage {found.first:.4f}, difference "
        f"{found.difference:+.4f}{interval} (95 % interval, {found.queries} quer{'y' if found.queries == 1 else 'ies'})"
    )
    if high < 0:
        yield f"{where}: {what} ranks worse than the first stage that it reranks: do not use it as it is"
    elif found.difference < 0:
        yield f"{where}: {what} is below the first stage that it reranks, by no more than chance may do"
