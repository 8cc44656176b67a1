"""Queries that belong on one side of a split: of nearly the same text, or with a relevant document in common.

What a model has learned of one of them helps it with the other, so measures on the other promise too much.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rerank.lists.view import Lists
from rerank.storage.arrow import Array
from rerank.storage.files import say_once

NEAR = (4, 5)
"""Nearly equal texts have four of five words in common: Jaccard's coefficient of their sets."""

FEW = 0.05
"""A split stays as it is drawn where no larger share of the queries has a neighbour."""

Grouping = Literal["auto", "none"]


def query_groups(lists: Lists, grouping: Grouping, largest: int) -> tuple[Array, bool]:
    """Which queries stay together when lists are split.

    Queries of one text do, and where more than a twentieth of the queries has such a neighbour, also those of nearly
    equal text and those with a relevant document in common; either only if no group becomes larger than the smallest
    part, ``largest``. Of lists without texts, as feature files are, only equal ids are joined.

    Returns:
        The group of every query, ``[Q]``, by its first; and whether groups are more than queries of one text.
    """
    first: dict[str, int] = {}
    equal = groups = np.array([first.setdefault(key, i) for i, key in enumerate(lists.query_keys)], np.int64)
    if grouping == "auto" and lists.store.has_text:
        links = (near_links(lists.query_texts), "nearly equal texts"), (relevant_links(lists), "relevant documents")
        for more, what in links:
            if (found := grouped(len(lists), chain(enumerate(groups.tolist()), more), largest)) is None:
                say_once(
                    f"{lists.store}: {what} join more than {largest} queries, too many for one side of a split, "
                    "so they do not keep queries together"
                )
            else:
                groups = found
    joined = np.isin(groups, groups[groups != equal])
    several = int(joined.sum()) > FEW * len(lists)
    if joined.any():
        together = f"; {len(set(groups[joined].tolist()))} groups of them stay together (data.groups)"
        say_once(
            f"{lists.store}: {joined.sum()} of {len(lists)} queries have nearly the text of another or a relevant "
            f"document in common with it{together if several else ': too few to draw otherwise'}"
        )
    return (groups if several else equal), several


def grouped(count: int, links: Iterable[tuple[int, int]], largest: int) -> Array | None:
    """The groups that links make of so many things, ``[count]``: of each the first thing that it is linked to."""
    from scipy.cluster.hierarchy import DisjointSet

    groups, first = DisjointSet(range(count)), np.arange(count)
    for one, other in links:
        if groups.merge(one, other) and groups.subset_size(one) > largest:
            return None
    for group in groups.subsets():
        first[list(group)] = min(group)
    return first


def _linked(keys: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int]]:
    """Things, by their numbers, and the first thing that has the same key."""
    first: dict[str, int] = {}
    for i, key in keys:
        if (there := first.setdefault(key, i)) != i:
            yield there, i


def words(text: str) -> frozenset[str]:
    """What of a text is compared: its words, without case, order and punctuation."""
    return frozenset(re.findall(r"\w+", text.lower()))


def near_links(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    r"""Pairs of nearly equal texts; those with the same words meet the others through the first of them.

    Sets of words with :math:`|x \cap y| \ge t\,|x \cup y|` share :math:`o = \lceil t\,|x| \rceil` words or more. With
    all words in one order, the first :math:`|x| - o + 1` of either therefore have one in common (prefix filtering;
    Chaudhuri et al. 2006). Rare words come first, so that a set is compared with the few that share one of its rarest
    fifth of words, and none is missed. The time grows with the number of sets and, where many differ in a word or two
    only, with the pairs of those.
    """
    sets = [words(text) for text in texts]
    counts = Counter(chain.from_iterable(sets))
    first, holding = dict[frozenset[str], int](), dict[str, list[int]]()
    for i, some in enumerate(sets):
        if not some:
            continue
        if (there := first.setdefault(some, i)) != i:
            yield there, i
            continue
        kept = len(some) - -(-len(some) * NEAR[0] // NEAR[1]) + 1
        rarest = sorted(some, key=lambda word: (counts[word], word))[:kept]
        for number in dict.fromkeys(chain.from_iterable(holding.get(word, ()) for word in rarest)):
            shared = len(some & sets[number])
            if shared * NEAR[1] >= (len(some) + len(sets[number]) - shared) * NEAR[0]:
                yield number, i
        for word in rarest:
            holding.setdefault(word, []).append(i)


def have_near(texts: Sequence[str], others: Sequence[str]) -> Array:
    """Which of some texts are nearly equal to one of the others, ``[texts]`` bool."""
    sets, count = [words(text) for text in texts], len(others)
    distinct = dict(zip(sets, texts, strict=True))
    links = near_links([*others, *distinct.values()])
    near = {number - count for other, number in links if other < count <= number}
    found = {some for i, some in enumerate(distinct) if i in near}
    return np.array([some in found for some in sets], dtype=bool)


def relevant_links(lists: Lists) -> Iterator[tuple[int, int]]:
    """Pairs of queries with a relevant document in common; each meets the others through the first of them."""
    qrels = lists.qrels or {}
    times = Counter(chain.from_iterable(map(_relevant, qrels.values())))
    shared = _one_document([lists.store.documents], {document for document, count in times.items() if count > 1})
    each = ((i, document) for i, query in enumerate(lists.query_ids) for document in _relevant(qrels.get(query, {})))
    yield from _linked((i, document) for i, document in each if document in shared)


def _relevant(judged: Mapping[str, int]) -> list[str]:
    return [document for document, grade in judged.items() if grade > 0]


def _one_document(tables: Sequence[pa.Table], ids: Collection[str]) -> set[str]:
    """Of these ids, those that do not stand for several texts in the tables: collections often use the same ids."""
    if not ids:
        return set()
    values = pa.array(ids, pa.large_string())
    wide = pa.schema([(name, pa.large_string()) for name in ("doc_id", "text")])
    parts = [table.select(wide.names).cast(wide) for table in tables if "text" in table.column_names]
    if not parts:
        return set(ids)
    there = pa.concat_tables(part.filter(pc.is_in(part["doc_id"], value_set=values)) for part in parts)
    texts = there.group_by("doc_id").aggregate([("text", "count_distinct")])
    return set(ids) - set(texts.filter(pc.greater(texts["text_count_distinct"], 1))["doc_id"].to_pylist())


def seen_queries(
    tested: Mapping[str, Mapping[str, int]],
    trained: Iterable[Mapping[str, Mapping[str, int]]],
    documents: Sequence[pa.Table] = (),
) -> set[str]:
    """The tested queries with a relevant document that is relevant to a query that was trained on, by their judgments.

    An id that has several texts in the tables of documents (``doc_id``, ``text``) stands for several documents.
    """
    known = set(chain.from_iterable(_relevant(judged) for qrels in trained for judged in qrels.values()))
    shared = _one_document(documents, known & set(chain.from_iterable(map(_relevant, tested.values()))))
    return {query for query, judged in tested.items() if not shared.isdisjoint(_relevant(judged))}


def in_common(lists: Lists, others: Lists) -> Iterator[tuple[str, int, int]]:
    """What some lists and others share: what it is, and how many queries (or candidates) on either side."""
    sides = (lists, others), (others, lists)
    ids = set(lists.query_ids) & set(others.query_ids)
    yield "queries of one id", len(ids), len(ids)
    if lists.store.has_text and others.store.has_text:
        here, there = (int(np.isin(one.query_keys, other.query_keys).sum()) for one, other in sides)
        yield "queries of equal text", here, there
        here, there = (int(have_near(one.query_texts, other.query_texts).sum()) for one, other in sides)
        yield "queries of nearly equal text", here, there
    tables = [lists.store.documents, others.store.documents]
    here, there = (len(seen_queries(one.qrels or {}, [other.qrels or {}], tables)) for one, other in sides)
    yield "queries with a relevant document in common", here, there
    candidates = set(lists.document_ids(np.unique(lists.documents)))
    same = len(_one_document(tables, candidates & set(others.document_ids(np.unique(others.documents)))))
    yield "distinct candidates", same, same
