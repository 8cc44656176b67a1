"""Runs over parts of the queries: those of which training has seen a relevant document, and the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rerank.evaluation.measures import COUNTS, PerQuery
from rerank.evaluation.significance import bootstrap_interval, differences

SEEN = "seen"
UNSEEN = "unseen"


@dataclass(frozen=True)
class Part:
    """A run in one measure, over the queries of one part.

    Attributes:
        difference: mean difference from the baseline; NaN without one.
    """

    run: str
    measure: str
    part: str
    queries: int
    mean: float
    interval: tuple[float, float]
    difference: float
    difference_interval: tuple[float, float]


def parts_of(tables: Mapping[str, PerQuery], baseline: str | None, seen: Collection[str]) -> Iterator[Part]:
    """Every run in every measure, over the seen queries and over the others."""
    for run, table in tables.items():
        first = np.array([query in seen for query in table.queries], dtype=bool)
        for i, measure in enumerate(table.measures):
            if measure.NAME in COUNTS:
                continue
            for part, chosen in ((SEEN, first), (UNSEEN, ~first)):
                values = table.values[i][chosen]
                none = np.full(len(values), np.nan)
                other = none if baseline in (None, run) else tables[str(baseline)].values[i][chosen]
                about = [
                    (float(some.mean()) if len(some) else float("nan"), bootstrap_interval(some))
                    for some in (values[~np.isnan(values)], differences(values, other))
                ]
                yield Part(run, str(measure), part, int((~np.isnan(values)).sum()), *about[0], *about[1])
