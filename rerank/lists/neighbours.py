"""Queries that belong on one side of a split: of one text, or with a relevant document in common.

A model that was trained on one of them has an advantage on the other, so measures on the other are optimistic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rerank.storage.files import say_once

if TYPE_CHECKING:
    from rerank.lists.view import Lists
    from rerank.storage.arrow import Array

Grouping = Literal["auto", "none"]


def query_groups(lists: Lists, grouping: Grouping, largest: int) -> Array:
    """Group the queries that must stay together when lists are split.

    Queries of one text stay together; with ``auto`` also those with a relevant document in common, unless that makes a
    group larger than the smallest part, ``largest``. Lists without texts, such as feature files, are grouped by id.

    Returns:
        The position of the first query of each query's group, ``[Q]``.
    """
    first: dict[str, int] = {}
    equal = np.array([first.setdefault(key, i) for i, key in enumerate(lists.query_keys)], np.int64)
    if grouping == "none" or not lists.store.has_text:
        return equal
    groups = grouped(len(lists), chain(enumerate(equal.tolist()), relevant_links(lists)), largest)
    if groups is None:
        say_once(
            f"{lists.store}: relevant documents join more than {largest} queries, too many for one side of a split, "
            "so they do not keep queries together"
        )
        return equal
    if (joined := np.isin(groups, groups[groups != np.arange(len(groups))])).any():
        say_once(
            f"{lists.store}: {joined.sum()} of {len(lists)} queries have the text of another or a relevant document in "
            f"common with it; {len(np.unique(groups[joined]))} groups of them stay together (data.leakage_groups)"
        )
    return groups


def grouped(count: int, links: Iterable[tuple[int, int]], largest: int) -> Array | None:
    """Join linked items, ``[count]``, each named by the first of its group; None if a group exceeds ``largest``."""
    from scipy.cluster.hierarchy import DisjointSet

    groups, first = DisjointSet(range(count)), np.arange(count)
    for one, other in links:
        if groups.merge(one, other) and groups.subset_size(one) > largest:
            return None
    for group in groups.subsets():
        first[list(group)] = min(group)
    return first


def relevant_links(lists: Lists) -> Iterator[tuple[int, int]]:
    """Yield pairs of queries with a relevant document in common: each query that has it, and the first one."""
    relevant = [_relevant((lists.qrels or {}).get(query, {})) for query in lists.query_ids]
    times = Counter(chain.from_iterable(relevant))
    shared = _one_document([lists.store.documents], {document for document, count in times.items() if count > 1})
    first: dict[str, int] = {}
    for i, documents in enumerate(relevant):
        for document in shared.intersection(documents):
            if (there := first.setdefault(document, i)) != i:
                yield there, i


def _relevant(judged: Mapping[str, int]) -> list[str]:
    return [document for document, grade in judged.items() if grade > 0]


def _one_document(tables: Sequence[pa.Table], ids: set[str]) -> set[str]:
    """Return the ids that do not stand for several texts in the tables: collections often use the same ids."""
    if not ids:
        return ids
    tables = [table.select(["doc_id", "text"]).cast(DOCUMENT) for table in tables if "text" in table.column_names]
    if not tables:
        return ids
    values = pa.array(ids, pa.large_string())
    there = pa.concat_tables(table.filter(pc.is_in(table["doc_id"], value_set=values)) for table in tables)
    texts = there.group_by("doc_id").aggregate([("text", "count_distinct")])
    return ids - set(texts.filter(pc.greater(texts["text_count_distinct"], 1))["doc_id"].to_pylist())


DOCUMENT = pa.schema([("doc_id", pa.large_string()), ("text", pa.large_string())])


def seen_queries(
    tested: Mapping[str, Mapping[str, int]],
    trained: Iterable[Mapping[str, Mapping[str, int]]],
    documents: Sequence[pa.Table] = (),
) -> set[str]:
    """Return the tested queries that share a relevant document with a training query.

    An id that has several texts in the tables of documents (``doc_id``, ``text``) stands for several documents.
    """
    known = set(chain.from_iterable(_relevant(judged) for qrels in trained for judged in qrels.values()))
    shared = _one_document(documents, known & set(chain.from_iterable(map(_relevant, tested.values()))))
    return {query for query, judged in tested.items() if not shared.isdisjoint(_relevant(judged))}
