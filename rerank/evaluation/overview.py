"""What lists are worth: what each system finds and adds, and what the best reranking could reach."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import ir_measures
import numpy as np
from ir_measures import Measure

from rerank.evaluation.measures import Evaluator, PerQuery, parse_measures, pool
from rerank.evaluation.render import Section, TableCell, number, plain, queries_sentence
from rerank.lists.neighbours import in_common
from rerank.lists.view import Lists
from rerank.progress import tqdm
from rerank.retrieval.fuse import RRF, K, reciprocal_ranks
from rerank.retrieval.runs import Scored, best_first
from rerank.settings.help import screen
from rerank.storage.arrow import Array

ROWS = 65_536
"""Candidates looked at together."""

WIDE = 16
"""A column with this many numbers or more holds features; none of them is looked at alone."""

DEPTHS = (10, 20, 50, 100, 200, 500, 1000)
"""Depths at which reranking is looked at, beside that of the lists."""

BEST = "best possible"
"""What the order by grade is called."""


@dataclass(frozen=True)
class System:
    """A column of one number, or one number of a column.

    Attributes:
        only: how many relevant candidates no other system returned; None for columns that retrieved nothing: fusions
            and, where several systems made the lists, columns that were added afterwards.
    """

    name: str
    candidates: int
    queries: int
    only: int | None


@dataclass(frozen=True)
class Overview:
    """What there is to know about lists.

    Attributes:
        alone: values of each system, and of the best possible order of all candidates; empty where nothing is judged.
        missed: the share of the relevant documents that are not candidates, a mean over the queries that have some; NaN
            where none has.
        tops: depth of reranking, recall there, and the main measure of the best possible order of that many.
        shared: by the lists that models were trained on, what these share with them: what, how many here, how many
            there.
    """

    lists: Lists
    systems: Sequence[System]
    features: dict[str, int]
    depth: tuple[int, float, int]
    main: str
    alone: dict[str, PerQuery] = field(default_factory=dict)
    fused: dict[str, PerQuery] = field(default_factory=dict)
    missed: float = float("nan")
    tops: list[tuple[int, float, float]] = field(default_factory=list)
    shared: dict[str, list[tuple[str, int, int]]] = field(default_factory=dict)


def overview(lists: Lists, measures: str | None = None, trained_on: Sequence[Lists] = ()) -> Overview:
    """Look at lists: depths, systems, and where there are judgments, measures; what they share with others.

    Systems are ranked as trec_eval does: ties by descending document id. The first measure is the main one; None takes
    nDCG@10, AP and recall at 10, 100 and the lists' depth. Lists come without added documents.
    """
    deepest, median = int(lists.lengths.max(initial=0)), float(np.median(lists.lengths)) if len(lists) else 0.0
    chosen = parse_measures(measures or " ".join(dict.fromkeys(["nDCG@10 AP R@10 R@100", f"R@{max(deepest, 1)}"])))
    columns = lists.store.numbers_by_column()
    names = [number for numbers in columns.values() if len(numbers) <= WIDE for number in numbers]
    look = _Look(lists, names, chosen)
    for some in tqdm(list(lists.in_blocks(ROWS)), desc="looking at lists", unit=" blocks", disable=None, delay=2):
        look.at(some)
    values = {ranked: pool(parts) for ranked, parts in look.values.items()}
    missed = float("nan")
    tops: list[tuple[int, float, float]] = []
    if (recall := values.get(0)) is not None:
        found = recall.values[-1][~recall.without_relevant[-1]]  # a query without relevant documents misses none
        missed = 1 - float(found.mean()) if len(found) else missed
        tops = [(d, r, values[d].mean[str(chosen[0])]) for d, r in zip(look.depths, recall.mean.values(), strict=True)]
    return Overview(
        lists=lists,
        systems=[
            System(name, int(look.candidates[i]), int(look.queries[i]), int(look.only[i]) if look.finds[i] else None)
            for i, name in enumerate(names)
        ],
        features={name: len(numbers) for name, numbers in columns.items() if len(numbers) > WIDE},
        depth=(int(lists.lengths.min(initial=deepest)), median, deepest),
        main=str(chosen[0]),
        alone={name: values[name] for name in (*names, BEST) if name in values},
        fused={name: values[name] for name in look.fusions if name in values},
        missed=missed,
        tops=tops,
        shared={str(others.store): list(in_common(lists, others)) for others in trained_on},
    )


class _Look:
    """What is summed up while going through the lists, a block at a time.

    Attributes:
        values: by what is ranked: systems, fusions, ``BEST``; 0 for the lists as they are, whose recall at each depth
            is measured, and a depth for the best order of so many candidates, by the main measure.
    """

    def __init__(self, lists: Lists, names: list[str], measures: Sequence[Measure]) -> None:
        self.names, self.measures = names, measures
        made = [lists.store.entry(name.partition("/")[0]).made for name in names]
        self.finds = [name != RRF and "sha256" not in about for name, about in zip(names, made, strict=True)]
        if sum(self.finds) < 2:  # the lists are of one system: all others were added afterwards
            self.finds = [name != RRF and "model" not in about for name, about in zip(names, made, strict=True)]
        self.fusions = _fusions(names, lists.store.order)
        deepest = int(lists.lengths.max(initial=0))
        depths = DEPTHS if lists.store.order else ()  # what comes in no order is not cut
        self.depths = [*(depth for depth in depths if depth < deepest), deepest] if deepest else []
        self.candidates, self.queries, self.only = (np.zeros(len(names), np.int64) for _ in range(3))
        self.values: dict[str | int, list[PerQuery]] = defaultdict(list)

    def at(self, some: Lists) -> None:
        judgments = some.qrels or {}
        ids = some.document_ids(some.documents)
        columns = [some.column(name) for name in self.names]
        rankings: dict[str | int, dict[str, list[Scored]]] = defaultdict(dict)
        for i, query in enumerate(some.query_ids):
            start, end = some.offsets[i : i + 2].tolist()
            listed, grades = ids[start:end], some.grades[start:end]
            orders = [best_first(listed, values[start:end]) for values in columns]
            self._count(orders, grades)
            if not judgments.get(query):
                continue
            for name, order in zip(self.names, orders, strict=True):
                rankings[name][query] = _ranked([listed[j] for j in order])
            for name, members in self.fusions.items():
                rankings[name][query] = reciprocal_ranks([[listed[k] for k in orders[j]] for j in members])
            by_grade = np.argsort(-grades.astype(np.int64), kind="stable")
            rankings[BEST][query] = _ranked([listed[j] for j in by_grade])
            rankings[0][query] = _ranked(listed)
            for depth in self.depths:
                rankings[depth][query] = _ranked([listed[j] for j in by_grade if j < depth])
        if not rankings:
            return
        judged = {query: judgments[query] for query in some.query_ids if judgments.get(query)}
        whole = Evaluator(judged, [ir_measures.Judged @ 10, *self.measures])
        recall = Evaluator(judged, [ir_measures.R @ depth for depth in self.depths])
        main = Evaluator(judged, [self.measures[0]])
        for ranked, run in rankings.items():
            evaluator = whole if isinstance(ranked, str) else main if ranked else recall
            self.values[ranked].append(evaluator(run, str(ranked), warn=False))

    def _count(self, orders: list[list[int]], grades: Array) -> None:
        known = np.zeros((len(orders), len(grades)), dtype=bool)
        for i, order in enumerate(orders):
            known[i, order] = True
        self.candidates += known.sum(axis=1)
        self.queries += known.any(axis=1)
        found = known & np.array(self.finds, dtype=bool)[:, None]
        self.only += (found & (found.sum(axis=0) == 1) & (grades > 0)).sum(axis=1)


def _fusions(names: list[str], order: str | None) -> dict[str, list[int]]:
    """Which systems are fused, by what that is called."""
    members = [i for i, name in enumerate(names) if name != RRF]
    if len(members) < 2:
        return {}
    everything = {f"all {len(members)}": members}
    if order in names and order != RRF:
        first = names.index(order)
        pairs = {f"{order} + {names[i]}": [first, i] for i in members if i != first}
        return pairs | (everything if len(members) > 2 else {})
    without = {f"all but {names[i]}": [j for j in members if j != i] for i in members}
    return everything | (without if len(members) > 2 else {})


def _ranked(ids: Sequence[str]) -> list[Scored]:
    return [Scored(id, float(-rank)) for rank, id in enumerate(ids)]


def text(about: Overview, bold: bool = False) -> str:
    """Everything on one screen of a terminal."""
    lines = list(facts(about))
    for table in tables(about):
        lines += ["", *table.text(bold)]
    said = [line for sentence in verdict(about) for line in textwrap.wrap(sentence, screen())]
    return "\n".join([*lines, "", *said]).rstrip() + "\n"


def tables(about: Overview) -> Iterator[Section]:
    """The systems, their fusions, what reranking some depth could reach, and what the lists share with others."""
    if about.systems or about.alone:
        yield systems_table(about)
    if about.fused:
        means = {name: values.mean for name, values in about.fused.items()}
        header = [f"fused by reciprocal ranks (k = {K})", *list(next(iter(means.values())))[1:]]
        yield Section("Fusions", header, [[*plain(name), *_values(mean, means)[1:]] for name, mean in means.items()])
    if about.tops:
        rows = [plain(depth, number(recall), number(best)) for depth, recall, best in about.tops]
        yield Section("Depths", ["reranking the top", "recall", f"best possible {about.main}"], rows)
    for name, shared in about.shared.items():
        yield Section("Shared", [f"in common with {name}", "here", "there"], [plain(*numbers) for numbers in shared])


def facts(about: Overview) -> Iterator[str]:
    """Sentences about what there is."""
    lists, store = about.lists, about.lists.store
    low, median, high = about.depth
    judged = "none judged" if lists.qrels is None else f"{sum(map(bool, lists.qrels.values()))} judged"
    yield f"{store}: {store.manifest['collection']['name']}"
    yield (
        f"{len(lists)} queries ({judged}), {lists.size} candidates ({low} to {high} a query, median {median:g}), "
        f"{store.documents.num_rows} distinct documents"
    )
    if added := int(store.added.sum()):
        yield f"{added} relevant documents that were not retrieved are hidden, for training only"
    for name, count in about.features.items():
        yield f"column {name}: {count} numbers a candidate"


def systems_table(about: Overview) -> Section:
    """A system a row, and the best possible order."""
    columns = list(next(iter(about.alone.values())).mean) if about.alone else []
    header = ["systems", "candidates", "queries", *(name.lower() if i == 0 else name for i, name in enumerate(columns))]
    alone = {name: values.mean for name, values in about.alone.items()}
    systems = {system.name: alone.get(system.name, {}) for system in about.systems}
    several = _compares(about) and bool(columns)
    rows = []
    for system in about.systems:
        share = f"{system.candidates / max(about.lists.size, 1):.0%}"
        name = f"{system.name} (order)" if system.name == about.lists.store.order else system.name
        row = plain(name, f"{system.candidates} ({share})", system.queries)
        row += _values(alone.get(system.name, {}), systems)
        rows.append(row + (plain("-" if system.only is None else system.only) if several else []))
    if BEST in alone:
        row = plain(BEST, f"{about.lists.size} (100%)", int((about.lists.lengths > 0).sum()))
        rows.append(row + _values(alone[BEST], {}) + (plain("") if several else []))
    return Section("Systems", header + (["only it"] if several else []), rows)


def _compares(about: Overview) -> bool:
    """Whether there are several systems whose candidates can be compared."""
    return sum(system.only is not None for system in about.systems) > 1


def _values(mean: dict[str, float], others: dict[str, dict[str, float]]) -> list[TableCell]:
    """The cells of a row; the best of a column is marked, but not of how much is judged."""
    cells = []
    for i, (measure, value) in enumerate(mean.items()):
        highest = max((other[measure] for other in others.values()), default=np.inf)
        best = i > 0 and len(others) > 1 and value >= highest - 1e-12
        cells.append(TableCell(f"{value:.0%}" if i == 0 else number(value), best))
    return cells


def verdict(about: Overview) -> Iterator[str]:
    """Sentences that say what the numbers mean for reranking."""
    if about.lists.qrels is None or not about.alone:
        yield "There are no judgments, so nothing can be measured; `rerank retrieve --qrels` stores some."
        return
    best, order = about.alone[BEST], about.lists.store.order
    reach = best.mean[about.main]
    if order in about.alone:
        now = about.alone[order].mean[about.main]
        yield f"{about.main} is {number(now)} by {order}; the best reranking of all candidates has {number(reach)}."
    if not np.isnan(about.missed):
        share = f"{about.missed:.1%} of the relevant documents are not candidates"
        yield f"{share}; no reranking finds them (mean of the queries that have some)."
    if about.lists.size and (about.lists.grades > 0).all():
        yield "Every candidate has a grade above 0, so any order is perfect to AP, RR and the like; not relevant is 0."
    yield f"{queries_sentence(best)} Ties as trec_eval: by document id."
    if _compares(about) and any(system.only for system in about.systems):
        yield "only it: relevant candidates that no other system returned."
