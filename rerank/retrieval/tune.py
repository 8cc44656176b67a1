"""BM25's parameters by grid search, so that the baseline is as well tuned as what is compared with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

from rerank.collections.base import Query
from rerank.progress import tqdm
from rerank.retrieval.bm25 import BM25
from rerank.retrieval.runs import Run

GRID = tuple(BM25(k1=k1, b=b) for k1, b in product((0.5, 0.7, 0.9, 1.2, 1.5, 2.0), (0.2, 0.3, 0.4, 0.5, 0.65, 0.8)))
RM3_GRID = tuple(
    BM25(rm3=True, fb_terms=terms, fb_docs=docs, original_query_weight=weight)
    for terms, docs, weight in product((10, 20), (5, 10), (0.3, 0.5, 0.7))
)


class Tuned(NamedTuple):
    """What came out: the best setting, its value, and every setting that was tried with its value."""

    best: BM25
    value: float
    tried: list[tuple[BM25, float]]


def tune(
    index: Path,
    queries: Sequence[Query],
    value_of: Callable[[Run], float],
    depth: int = 150,
    grid: Sequence[BM25] = GRID,
    rm3: bool = False,
    language: str = "en",
) -> Tuned:
    """Choose BM25's parameters on training or validation queries (not on those that are reported).

    Args:
        index: folder of a Lucene index.
        queries: the queries to tune on, all of them judged.
        value_of: what is maximised, such as the mean of a measure over the queries.
        depth: how many documents a query gets at the most.
        grid: the settings to try.
        rm3: whether to try RM3 too, at the best `k1` and `b` of the grid.
        language: whose analyser the index has.

    Returns:
        The best setting, the earliest of the grid where several are, and the table of all.
    """

    def tried_of(settings: Sequence[BM25], title: str) -> list[tuple[BM25, float]]:
        bar = tqdm(settings, title, unit="setting", disable=None)
        return [(setting, value_of(setting.search(index, queries, depth, progress=False))) for setting in bar]

    tried = tried_of([replace(setting, language=language) for setting in grid], "tuning BM25")
    if rm3:
        best = _best(tried)[0]
        expanded = [replace(setting, k1=best.k1, b=best.b, language=language) for setting in RM3_GRID]
        tried += tried_of(expanded, "tuning RM3")
    return Tuned(*_best(tried), tried)


def _best(tried: Iterable[tuple[BM25, float]]) -> tuple[BM25, float]:
    return max(tried, key=lambda pair: pair[1])
