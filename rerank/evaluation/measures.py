"""Score runs against qrels, query by query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from ir_measures import Measure

from rerank.collections.judgments import HIGHEST
from rerank.errors import UserError
from rerank.evaluation.measure_names import parse_measures
from rerank.evaluation.providers import PIPELINE, nERR
from rerank.retrieval.runs import as_float32
from rerank.settings.arguments import check_value
from rerank.storage.files import warn_once

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Empty", "Evaluator", "PerQuery", "check_overlap", "nERR", "parse_measures", "pool"]

Empty = Literal["drop", "0", "1"]
Qrels = Mapping[str, Mapping[str, int]]
Ranking = Mapping[str, float] | Sequence[tuple[str, float]]
Run = Mapping[str, Ranking]

# Counts describe a run or the qrels, not quality: empty queries are not special, and nothing is tested.
COUNTS = frozenset({"Judged", "NumQ", "NumRel", "NumRet"})


@dataclass(frozen=True, repr=False)
class PerQuery:
    """Values of a run by measure and query.

    Attributes:
        measures: one per row of ``values``.
        queries: query ids, one per column of ``values``, in the order of the qrels.
        values: ``[measures, queries]`` float64; NaN if ``drop`` leaves a query out.
        missing: queries without documents in the run; they score 0.
        lacking: by measure, the number of queries without documents that are relevant for it.
        empty: policy for those, ``"drop"``, ``"0"`` or ``"1"``.
    """

    measures: tuple[Measure, ...]
    queries: tuple[str, ...]
    values: np.ndarray
    missing: tuple[str, ...]
    lacking: dict[str, int]
    empty: Empty

    def __getitem__(self, measure: str | Measure) -> np.ndarray:
        """Return the values of a measure, ``[queries]``."""
        return self.values[[str(known) for known in self.measures].index(str(measure))]

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {value:.4f}" for name, value in self.mean.items())
        return f"PerQuery({len(self.queries)} queries: {means})"

    def to_dataframe(self) -> pd.DataFrame:
        import pandas as pd

        values = dict(zip(map(str, self.measures), self.values, strict=True))
        return pd.DataFrame({"query_id": list(self.queries), **values})

    @property
    def mean(self) -> dict[str, float]:
        """Means over queries by measure (NaN without queries); NumQ, NumRel and NumRet are summed."""
        means = {}
        for measure, row in zip(self.measures, self.values, strict=True):
            aggregator = measure.aggregator()
            for value in row[~np.isnan(row)].tolist():
                aggregator.add(value)
            means[str(measure)] = aggregator.result()
        return means


def pool(tables: Sequence[PerQuery]) -> PerQuery:
    """Concatenate the queries of all folds."""
    first = tables[0]
    if any((table.measures, table.empty) != (first.measures, first.empty) for table in tables):
        raise UserError("the folds were scored in different measures or policies for empty queries")
    queries = tuple(query for table in tables for query in table.queries)
    if len(set(queries)) < len(queries):
        twice = next(query for query in queries if queries.count(query) > 1)
        raise UserError(f"query {twice!r} is in more than one fold")
    return replace(
        first,
        queries=queries,
        values=np.concatenate([table.values for table in tables], axis=1),
        missing=tuple(query for table in tables for query in table.missing),
        lacking={name: sum(table.lacking[name] for table in tables) for name in first.lacking},
    )


class Evaluator:
    """Scorer of runs against the same qrels.

    >>> run = {"q": [("a", 3.0), ("b", 2.0)]}  # the second is the relevant one: 1 / log2(3)
    >>> {name: round(value, 4) for name, value in Evaluator({"q": {"b": 1}}, "nDCG@10 RR")(run).mean.items()}
    {'nDCG@10': 0.6309, 'RR': 0.5}

    Scores are compared as float32, and ties keep the order of the run. Negative grades mean not judged, as in
    trec_eval. Every query of the qrels counts, also without documents in the run (except for NumQ and NumRel, as in
    ir-measures).

    Args:
        measures: ir-measures strings or objects, see :func:`parse_measures`.
        empty: value of a query without documents that are relevant for the measure (grade at least ``rel``, or gain
            above 0): ``"0"`` as trec_eval, ``"1"``, or ``"drop"`` to leave it out.
    """

    def __init__(self, qrels: Qrels, measures: str | Measure | Sequence[str | Measure], empty: Empty = "0") -> None:
        check_value("empty", empty, Empty)
        if not qrels:
            raise UserError("the qrels hold no query")
        if any(abs(grade) > HIGHEST for grades in qrels.values() for grade in grades.values()):  # trec_eval crashes
            raise UserError(f"the qrels hold a grade beyond {HIGHEST}, the highest that there is room for")
        self.measures = tuple(parse_measures(measures))
        self.empty = empty
        self.queries = tuple(qrels)
        self._lacks = np.array([[_lacks_relevant(one, grades) for grades in qrels.values()] for one in self.measures])
        self.lacking = dict(zip(map(str, self.measures), self._lacks.sum(axis=1).tolist(), strict=True))
        if negative := sum(grade < 0 for grades in qrels.values() for grade in grades.values()):
            if any(measure.NAME == "infAP" for measure in self.measures):
                raise UserError("measure infAP: gives grade -1 a meaning of its own, but it means not judged here")
            warn_once(f"{negative} judgments with a negative grade count as not judged")
            qrels = {query: {doc: grade for doc, grade in of.items() if grade >= 0} for query, of in qrels.items()}
        # ir-measures 0.4.3 mixes up gains and `judged_only` of measures that it computes together
        groups: dict[tuple[str, bool], list[Measure]] = {}
        for measure in self.measures:
            key = (repr(measure.params.get("gains")), measure.params.get("judged_only", False))
            groups.setdefault(key, []).append(measure)
        self._scorers = [PIPELINE.evaluator(group, qrels) for group in groups.values()]

    def __call__(self, run: Run, name: str = "the run") -> PerQuery:
        """Score one run: ``{query: [(document, score), ...]}`` or ``{query: {document: score}}``."""
        given = ((query, run.get(query)) for query in self.queries)
        ranked = {query: _decreasing(ranking, query, name) for query, ranking in given if ranking}
        missing = tuple(query for query in self.queries if query not in ranked)
        if missing:
            some = ", ".join(map(repr, missing[:3])) + (", ..." if len(missing) > 3 else "")
            where = "" if self.empty == "0" else " where they have relevant documents"
            counted = f"{len(missing)} of {len(self.queries)} queries have no candidates"
            warn_once(f"{name}: {counted} and score 0{where} ({some})")
        column = {query: i for i, query in enumerate(self.queries)}
        rows = {measure: i for i, measure in enumerate(self.measures)}
        values = np.zeros((len(rows), len(column)))
        for metric in (metric for scorer in self._scorers for metric in scorer.iter_calc(ranked)):
            values[rows[metric.measure], column[metric.query_id]] = metric.value
        policy = np.array([measure.NAME not in COUNTS for measure in self.measures])
        values[self._lacks & policy[:, None]] = np.nan if self.empty == "drop" else float(self.empty)
        return PerQuery(self.measures, self.queries, values, missing, self.lacking, self.empty)


def check_overlap(run: Run, qrels: Qrels, run_name: str = "the run", qrels_name: str = "the qrels") -> None:
    """Raise a UserError if no document of a run is judged for its query."""

    def pairs(of: Run | Qrels) -> Iterator[tuple[str, str]]:
        for query, ranking in of.items():
            ids = ranking if isinstance(ranking, Mapping) else (document for document, _ in ranking)
            yield from ((query, document) for document in ids)

    if not any(document in qrels.get(query, ()) for query, document in pairs(run)):
        ours, theirs = (" ".join(next(pairs(of), ["nothing"])) for of in (run, qrels))
        raise UserError(
            f"{run_name}: none of its documents ({ours}, ...) is judged in {qrels_name} ({theirs}, ...); are the ids "
            "of queries and documents of the same collection?"
        )


def _decreasing(ranking: Ranking, query: str, name: str) -> dict[str, float]:
    """Replace scores by n, n - 1, ..., 1, so that no tool finds ties or loses digits."""
    pairs = ranking.items() if isinstance(ranking, Mapping) else ranking
    ids, given = zip(*pairs, strict=True)
    scores = as_float32(given)
    if np.isnan(scores).any():
        raise UserError(
            f"{name}: query {query!r}: the score of {ids[int(np.isnan(scores).argmax())]!r} is not a number"
        )
    order = np.argsort(-scores, kind="stable").tolist()
    ranked = {ids[position]: float(len(ids) - rank) for rank, position in enumerate(order)}
    if len(ranked) < len(ids):
        twice = next(document for document in ids if ids.count(document) > 1)
        raise UserError(f"{name}: query {query!r}: document {twice!r} appears more than once")
    return ranked


def _lacks_relevant(measure: Measure, grades: Mapping[str, int]) -> bool:
    gains = measure.params.get("gains")
    if gains is not None:
        return not any(gains.get(grade, grade) > 0 for grade in grades.values())
    return max(grades.values(), default=-1) < measure.params.get("rel", 1)
