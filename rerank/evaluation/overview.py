"""Statistics of ranked lists: depth, each system's measures, and the best possible reranking."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from ir_measures import Judged, Measure
from pandas import DataFrame

from rerank.evaluation.measures import Evaluator, PerQuery, parse_measures, pool
from rerank.evaluation.render import queries_sentence
from rerank.lists.view import Lists
from rerank.progress import screen, tqdm

ROWS = 65_536
"""Candidates in memory at a time."""

WIDE = 16
"""Columns with at least this many numbers hold features, which are not measured one by one."""

BEST = "best possible"
"""Row of the candidates in the order of their grades."""


@dataclass(frozen=True)
class Overview:
    """Statistics of lists.

    Attributes:
        systems: a row per column of scores and one for the best possible order: ``candidates``, ``queries``, and the
            means of the measures, if there are judgments.
        best: values of the best possible order; None without judgments.
    """

    lists: Lists
    systems: DataFrame
    best: PerQuery | None

    def __str__(self) -> str:
        forms = {"Judged@10": "{:.0%}".format, "queries": "{:.0f}".format, "candidates": "{:.0f}".format}
        systems = self.systems.to_string(na_rep="-", float_format="{:.4f}".format, formatters=forms)
        notes = [line for sentence in self._notes() for line in textwrap.wrap(sentence, screen())]
        return "\n".join([*self._sizes(), "", systems, "", *notes])

    def _sizes(self) -> Iterator[str]:
        lists, store = self.lists, self.lists.store
        lengths = lists.lengths if len(lists) else np.zeros(1, int)
        judged = "none judged" if lists.qrels is None else f"{sum(map(bool, lists.qrels.values()))} judged"
        yield f"{store}: {store.manifest['collection']['name']}"
        yield (
            f"{len(lists)} queries ({judged}), {lists.size} candidates ({lengths.min()} to {lengths.max()} a query, "
            f"median {np.median(lengths):g}), {store.documents.num_rows} distinct documents"
        )
        if added := int(store.added.sum()):
            yield f"{added} relevant documents that were not retrieved are hidden, for training only"
        for name, numbers in store.numbers_by_column().items():
            if len(numbers) >= WIDE:
                yield f"column {name}: {len(numbers)} numbers a candidate"

    def _notes(self) -> Iterator[str]:
        if self.best is None:
            yield "There are no judgments, so nothing can be measured; `rerank retrieve --qrels` stores some."
            return
        if self.lists.size and (self.lists.grades > 0).all():
            yield "Every candidate has a grade above 0, so any order is perfect to AP and RR; not relevant is 0."
        yield f"{queries_sentence(self.best)} Ties as in trec_eval: by document id."


def overview(lists: Lists, measures: str | None = None) -> Overview:
    """Compute statistics of lists, without added documents and with trec_eval's order of ties.

    Args:
        lists: the lists.
        measures: measures; by default nDCG@10, AP, and recall at 10, 100 and the lists' depth.
    """
    deepest = int(lists.lengths.max(initial=1))
    chosen = [Judged @ 10, *parse_measures(measures or f"nDCG@10 AP R@10 R@100 R@{deepest}")]
    names = [name for column in lists.store.numbers_by_column().values() if len(column) < WIDE for name in column]
    rows = {}
    for name in tqdm(names, desc="systems", disable=None, delay=2):
        known = ~np.isnan(lists.column(name))
        queries = len(np.unique(np.repeat(np.arange(len(lists)), lists.lengths)[known]))
        measured = _measured(lists, chosen, name)
        counts = {"candidates": known.sum(), "queries": queries}
        rows[f"{name} (order)" if name == lists.store.order else name] = counts | (measured.mean if measured else {})
    if best := _measured(lists, chosen):
        rows[BEST] = {"candidates": lists.size, "queries": np.count_nonzero(lists.lengths)} | best.mean
    systems = DataFrame.from_dict(rows, orient="index", columns=None if rows else ["candidates", "queries"])
    return Overview(lists, systems, best)


def _measured(lists: Lists, measures: Sequence[Measure], column: str | None = None) -> PerQuery | None:
    """Measure a column's ranking of the judged lists, or the ranking by grade; None if there are no such lists."""
    parts = []
    for some in lists.in_blocks(ROWS):
        if judged := {query: grades for query, grades in (some.qrels or {}).items() if grades}:
            run = some.run(column or some.grades.astype(np.float32))
            parts.append(Evaluator(judged, measures)(run, warn=False))
    return pool(parts) if parts else None
