"""What a page holds of each query: values, the top of every run, documents' texts; bounded in size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from ir_measures import Measure

from rerank.evaluation.measures import COUNTS, PerQuery, Qrels
from rerank.lists.view import Lists
from rerank.retrieval.runs import Run

TOP = 10
"""Ranks shown of each run."""

ENTRIES = 10_000
"""Ranks shown in all, so that a page stays below some ten megabytes: 500 queries of two runs, 100 of ten."""

LENGTH = 600
"""Characters shown of a document; a query may have as many."""

RELEVANT = 20
"""Relevant documents told of a query below the tops, those nearest to them."""


def relevant_from(measures: Sequence[Measure]) -> list[int]:
    """The lowest grades that count as relevant (``rel``) to measures that know only relevant and other documents.

    >>> from ir_measures import AP, nDCG
    >>> relevant_from([nDCG, AP(rel=2), AP]), relevant_from([nDCG])
    ([1, 2], [1])
    """
    return sorted({measure.params.get("rel", 1) for measure in measures if "rel" in measure.SUPPORTED_PARAMS} or {1})


def query_data(
    tables: Mapping[str, PerQuery], baseline: str, runs: Mapping[str, Run], qrels: Qrels | None, lists: Sequence[Lists]
) -> dict[str, Any]:
    """What the page's script reads.

    Returns:
        ``runs``, ``measures``, ``baseline``, ``relevant`` (the lowest grade that any measure holds relevant),
        ``queries`` (all ids), ``values`` ``[run][measure][query]``, ``shown``
        (by the query's position: its text and ``[document, grade, [rank in each run]]``), ``documents`` (id, text).
    """
    first = next(iter(tables.values()))
    names = list(tables)
    kept = [i for i, measure in enumerate(first.measures) if measure.NAME not in COUNTS]
    shown = choose(tables, kept, names.index(baseline)) if runs else []
    text_of = query_texts(lists, [first.queries[i] for i in shown])
    documents: dict[str, int] = {}
    relevant = relevant_from(first.measures)[0]
    entries = {
        i: {
            "text": cut(text_of.get(first.queries[i], "")),
            "entries": _entries(
                first.queries[i],
                [runs.get(name, {}) for name in names],
                (qrels or {}).get(first.queries[i]),
                documents,
                relevant,
            ),
        }
        for i in shown
    }
    texts = document_texts(lists, list(documents))
    return {
        "runs": names,
        "baseline": names.index(baseline),
        "measures": [str(first.measures[i]) for i in kept],
        "queries": list(first.queries),
        "values": [[_rounded(table.values[i]) for i in kept] for table in tables.values()],
        "top": TOP,
        "relevant": relevant,
        "shown": entries,
        "documents": [[id, cut(texts.get(id, ""))] for id in documents],
        "texts": bool(texts),
    }


def choose(tables: Mapping[str, PerQuery], kept: Sequence[int], baseline: int) -> list[int]:
    """Positions of the queries whose rankings are shown: all, or those that change most from the baseline.

    The change of a query is its largest difference from the baseline in any run and measure.
    """
    values = np.stack([table.values[list(kept)] for table in tables.values()])  # [runs, measures, queries]
    count = max(1, ENTRIES // (TOP * len(tables)))
    if values.shape[-1] <= count or not kept:
        return list(range(min(count, values.shape[-1])))
    change = np.nan_to_num(np.abs(values - values[baseline])).max(axis=(0, 1))
    return sorted(np.argsort(-change, kind="stable")[:count].tolist())


def cut(text: str, length: int = LENGTH) -> str:
    """A text in one line, and no longer than so many characters."""
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def query_texts(lists: Sequence[Lists], ids: Sequence[str]) -> dict[str, str]:
    """The text of queries by id, as far as the lists have them."""
    wanted = set(ids)
    found: dict[str, str] = {}
    for part in lists:
        if part.store.has_text:
            found |= {id: text for id, text in zip(part.query_ids, part.query_texts, strict=True) if id in wanted}
    return found


def document_texts(lists: Sequence[Lists], ids: Sequence[str]) -> dict[str, str]:
    """The text of documents by id, as far as the lists have them."""
    found: dict[str, str] = {}
    for table in {id(part.store): part.store.documents for part in lists}.values():
        if "text" in table.column_names:
            chosen = table.filter(pc.is_in(table.column("doc_id"), value_set=pa.array(ids, pa.string())))
            found |= dict(zip(chosen.column("doc_id").to_pylist(), chosen.column("text").to_pylist(), strict=True))
    return found


def _entries(
    query: str, runs: Sequence[Run], grades: Mapping[str, int] | None, documents: dict[str, int], lowest: int
) -> list[list[Any]]:
    """``[document, grade or None, [rank in each run or None]]``: the tops, and relevant documents below them."""
    ranks = [{document.id: rank for rank, document in enumerate(run.get(query, []), 1)} for run in runs]
    tops = dict.fromkeys(document.id for run in runs for document in run.get(query, [])[:TOP])
    relevant = [id for id, grade in (grades or {}).items() if grade >= lowest and id not in tops]
    relevant.sort(key=lambda id: min(rank.get(id, math.inf) for rank in ranks))
    return [
        [
            documents.setdefault(id, len(documents)),
            None if grades is None else grades.get(id),
            [rank.get(id) for rank in ranks],
        ]
        for id in [*tops, *relevant[:RELEVANT]]
    ]


def _rounded(values: np.ndarray) -> list[float | None]:
    return [round(value, 5) if math.isfinite(value) else None for value in values.tolist()]
