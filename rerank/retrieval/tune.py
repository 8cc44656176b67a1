"""BM25's parameters by grid search, so that the baseline is as well tuned as what is compared with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

from rerank.collections.base import Query
from rerank.errors import UserError, nearest
from rerank.progress import tqdm
from rerank.retrieval.bm25 import BM25
from rerank.retrieval.runs import Run, strictly_decreasing

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
    queries: Iterable[Query],
    qrels: Mapping[str, Mapping[str, int]],
    measure: str = "nDCG@10",
    depth: int = 150,
    grid: Sequence[BM25] = GRID,
    rm3: bool = False,
    language: str = "en",
) -> Tuned:
    """Choose BM25's parameters on training or validation queries (not on those that are reported).

    Args:
        index: folder of a Lucene index.
        queries: the queries to tune on; those without judgments are left out.
        qrels: judgments; negative grades count as 0.
        measure: what is maximised, by its name in ir-measures. Queries that find nothing have value 0.
        depth: how many documents a query gets at the most.
        grid: the settings to try.
        rm3: whether to try RM3 too, at the best `k1` and `b` of the grid.
        language: whose analyser the index has.

    Returns:
        The best setting, the earliest of the grid where several are, and the table of all.
    """
    import ir_measures

    judged = [query for query in queries if query.id in qrels]
    if not judged:
        raise UserError("BM25 cannot be tuned: none of the queries has judgments")
    grades = {query.id: {id: max(grade, 0) for id, grade in qrels[query.id].items()} for query in judged}
    try:
        parsed = ir_measures.parse_measure(measure)
        evaluator = ir_measures.evaluator([parsed], grades)
    except (KeyError, NameError, SyntaxError, TypeError, ValueError) as error:
        hint = nearest(measure.partition("@")[0], ir_measures.measures.registry)
        raise UserError(f"measure {measure!r}: {error}{hint}; expected a name of ir-measures") from error

    grid = [replace(setting, language=language) for setting in grid]

    def value_of(setting: BM25) -> float:
        run = setting.search(index, judged, depth, progress=False)
        return float(evaluator.calc_aggregate(_scores(run))[parsed])

    tried = [(setting, value_of(setting)) for setting in tqdm(grid, "tuning BM25", unit="setting", disable=None)]
    if rm3:
        best = _best(tried)[0]
        expanded = [replace(setting, k1=best.k1, b=best.b, language=language) for setting in RM3_GRID]
        tried += [
            (setting, value_of(setting)) for setting in tqdm(expanded, "tuning RM3", unit="setting", disable=None)
        ]
    return Tuned(*_best(tried), tried)


def _best(tried: Iterable[tuple[BM25, float]]) -> tuple[BM25, float]:
    return max(tried, key=lambda pair: pair[1])


def _scores(run: Run) -> dict[str, dict[str, float]]:
    """The run as ir-measures takes it, with scores that keep its order."""
    scores = {}
    for query, documents in run.items():
        values = strictly_decreasing([document.score for document in documents]).tolist()
        scores[query] = dict(zip((document.id for document in documents), values, strict=True))
    return scores
