"""Statistics of ranked lists: depth, each system's measures, and what a perfect reranking would reach."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from ir_measures import Judged, Measure, R
from pandas import DataFrame, RangeIndex

from rerank.evaluation.measures import Evaluator, PerQuery, parse_measures, pool
from rerank.evaluation.render import number, queries_sentence
from rerank.lists.neighbours import in_common
from rerank.lists.view import Lists
from rerank.progress import screen, tqdm
from rerank.storage.arrow import Array

ROWS = 65_536
"""Candidates in memory at a time."""

WIDE = 16
"""A column with at least this many numbers holds features, which are not measured one by one."""

DEPTHS = (10, 20, 50, 100, 200, 500, 1000)
"""Depths at which reranking is measured, besides that of the lists."""

BEST = "best possible"
"""The row of the candidates in the order of their grades."""


@dataclass(frozen=True)
class Overview:
    """Statistics of lists.

    Attributes:
        systems: a row per column of scores and one for the best possible order: ``candidates``, ``queries``, and the
            means of the measures, if there are judgments.
        depths: a row per depth of reranking: ``recall`` and the main measure of the best possible order.
        missed: share of the relevant documents that are not candidates, averaged over the queries that have some.
        shared: by name of training lists, the numbers of queries and documents in common with them.
    """

    lists: Lists
    main: str
    systems: DataFrame
    depths: DataFrame
    missed: float
    shared: dict[str, DataFrame]
    best: PerQuery | None

    def __str__(self) -> str:
        shares = self.systems["candidates"] / max(self.lists.size, 1)
        counts = [f"{n:.0f} ({share:.0%})" for n, share in zip(self.systems["candidates"], shares, strict=True)]
        blocks = [_text(self.systems.assign(candidates=counts))]
        blocks += [_text(self.depths)] if len(self.depths) else []
        blocks += [f"in common with {name}:\n{_text(frame)}" for name, frame in self.shared.items()]
        said = [line for sentence in _verdict(self) for line in textwrap.wrap(sentence, screen())]
        return "\n".join([*_facts(self.lists), "", *(f"{block}\n" for block in blocks), *said])


def overview(lists: Lists, measures: str | None = None, trained_on: Sequence[Lists] = ()) -> Overview:
    """Compute statistics of lists, without added documents.

    Systems are ranked as in trec_eval: ties by descending document id.

    Args:
        lists: the lists.
        measures: measures, the main one first; by default nDCG@10, AP, and recall at 10, 100 and the lists' depth.
        trained_on: training lists to count common queries and documents with.
    """
    deepest = int(lists.lengths.max(initial=0))
    chosen = parse_measures(measures or " ".join(dict.fromkeys(["nDCG@10 AP R@10 R@100", f"R@{max(deepest, 1)}"])))
    columns = lists.store.numbers_by_column().values()
    names = [number for numbers in columns if len(numbers) < WIDE for number in numbers]
    rows = {}
    for name in tqdm(names, desc="systems", disable=None, delay=2):
        known = ~np.isnan(lists.column(name))
        counts = {"candidates": known.sum(), "queries": np.count_nonzero(_by_list(known, lists))}
        found = _measured(lists, [Judged @ 10, *chosen], lambda some, name=name: name)  # type: ignore[misc]
        rows[f"{name} (order)" if name == lists.store.order else name] = counts | ({} if found is None else found.mean)
    best = _measured(lists, [Judged @ 10, *chosen], _by_grade)
    if best is not None:
        counts = {"candidates": lists.size, "queries": np.count_nonzero(lists.lengths)}
        rows[BEST] = counts | best.mean
    ordered = DEPTHS if lists.store.order else ()  # without a first stage, no candidates come first
    depths, missed = [], float("nan")
    for depth in [*(depth for depth in ordered if depth < deepest), deepest] if best is not None and deepest else []:
        top = _measured(lists.top(depth), [chosen[0], R @ depth], _by_grade)
        assert top is not None
        found = top.values[1][~top.without_relevant[1]]
        missed = 1 - float(found.mean()) if len(found) else missed
        depths.append([depth, top.mean[f"R@{depth}"], top.mean[str(chosen[0])]])
    shared = {}
    for others in trained_on:
        common = {name: numbers for name, *numbers in in_common(lists, others)}
        shared[str(others.store)] = DataFrame.from_dict(common, orient="index", columns=["here", "there"])
    return Overview(
        lists,
        str(chosen[0]),
        DataFrame.from_dict(rows, orient="index", columns=None if rows else ["candidates", "queries"]),
        DataFrame(depths, columns=["reranking the top", "recall", f"best possible {chosen[0]}"]),
        missed,
        shared,
        best,
    )


def _by_list(values: Array, lists: Lists) -> Array:
    """Sums of values over each list, ``[Q]``."""
    return np.diff(np.concatenate([[0], np.cumsum(values)])[lists.offsets])


def _by_grade(lists: Lists) -> Array:
    return lists.grades.astype(np.float32)


def _measured(lists: Lists, measures: Sequence[Measure], scores: Callable[[Lists], Array | str]) -> PerQuery | None:
    """Measures of a ranking of the judged lists; None if there are none."""
    parts = []
    for some in lists.in_blocks(ROWS):
        if judged := {query: grades for query, grades in (some.qrels or {}).items() if grades}:
            parts.append(Evaluator(judged, measures)(some.run(scores(some)), warn=False))
    return pool(parts) if parts else None


def _text(frame: DataFrame) -> str:
    forms = {"Judged@10": "{:.0%}".format, "queries": "{:.0f}".format}
    return frame.to_string(
        index=not isinstance(frame.index, RangeIndex), na_rep="-", float_format="{:.4f}".format, formatters=forms
    )


def _facts(lists: Lists) -> Iterator[str]:
    """Sentences on the size of the lists."""
    store, lengths = lists.store, lists.lengths if len(lists) else np.zeros(1, int)
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


def _verdict(about: Overview) -> Iterator[str]:
    """Sentences on what reranking can reach."""
    if about.best is None:
        yield "There are no judgments, so nothing can be measured; `rerank retrieve --qrels` stores some."
        return
    measured, order = about.systems[about.main], f"{about.lists.store.order} (order)"
    if order in measured:
        now, reach = number(measured[order]), number(measured[BEST])
        yield f"{about.main} of {about.lists.store.order} is {now}; the best reranking of all candidates has {reach}."
    if not np.isnan(about.missed):
        yield f"{about.missed:.1%} of the relevant documents are not candidates (mean of the queries that have some)."
    if about.lists.size and (about.lists.grades > 0).all():
        yield "Every candidate has a grade above 0, so any order is perfect to AP, RR and the like; not relevant is 0."
    yield f"{queries_sentence(about.best)} Ties as in trec_eval: by document id."
