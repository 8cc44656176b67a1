"""Describe ranked lists: depth, each system's measures, and the best possible reranking."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rerank.evaluation.compare import compare, judgments_of
from rerank.evaluation.measures import Evaluator
from rerank.evaluation.render import queries_sentence, text
from rerank.evaluation.table import Table
from rerank.lists.view import Lists
from rerank.progress import screen, tqdm

WIDE = 16
"""Columns with at least this many numbers hold features, which are not measured one by one."""

BEST = "best possible"
"""Row of the candidates in the order of their grades."""


def overview(lists: Lists, measures: str | None = None) -> str:
    """Describe lists: their size and, if there are judgments, :func:`measured`."""
    lines, notes = [*_sizes(lists), ""], []
    if not any((lists.qrels or {}).values()):
        notes.append("There are no judgments, so nothing can be measured; `rerank retrieve --qrels` stores some.")
    else:
        table = measured(lists, measures)
        lines.append(text([replace(table.sections()[0], caption=())]))
        notes.append(f"{queries_sentence(table.first)} Ties as in trec_eval: by document id.")
    if lists.size and (lists.grades > 0).all():
        notes.append("Every candidate has a grade above 0, so any order is perfect to AP and RR; not relevant is 0.")
    return "\n".join([*lines, *(line for note in notes for line in textwrap.wrap(note, screen()))])


def measured(lists: Lists, measures: str | None = None) -> Table:
    """Measure each column of scores and the order of the grades, without added documents.

    Args:
        lists: the lists, with judgments.
        measures: measures; by default NumRet, Judged@10, nDCG@10, AP, and recall at 10, 100 and the lists' depth.
    """
    default = f"NumRet Judged@10 nDCG@10 AP R@10 R@100 R@{int(lists.lengths.max(initial=1))}"
    evaluator = Evaluator(judgments_of(lists), measures or default)
    names = [name for column in lists.store.numbers_by_column().values() if len(column) < WIDE for name in column]
    tables = {}
    for name in tqdm(names, desc="systems", disable=None, delay=2):
        tables[f"{name} (order)" if name == lists.store.order else name] = evaluator(lists.run(name), name)
    return compare(tables | {BEST: evaluator(lists.run(lists.grades), BEST)})


def _sizes(lists: Lists) -> Iterator[str]:
    store = lists.store
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
