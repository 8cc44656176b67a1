"""Runs in the forms that people have them: dictionaries, data frames, other libraries' objects, files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rerank.collections.base import checked_id, checked_ids
from rerank.collections.records import named_columns, some_names
from rerank.errors import UserError
from rerank.retrieval.pairs import FIELDS, floats, no_gaps
from rerank.retrieval.runs import RunTable, TwiceError, as_table, read_run

Rows = tuple[list[Any], list[Any], list[Any], list[Any] | None]
"""Query ids, document ids, scores and, where they are told, ranks."""


def as_run(given: Any, name: str = "run", columns: Mapping[str, str] | None = None) -> RunTable:
    """A run, best document first, from whatever it is in.

    Documents are put in descending order of score as float32. Ties stay in the order of ranks where ranks are told, and
    of a sequence; else they are in descending order of their ids, as trec_eval has them.

    >>> as_run({"q": {"a": 1.0, "b": 2.0, "c": 1.0}})["q"]
    [Scored(id='b', score=2.0), Scored(id='c', score=1.0), Scored(id='a', score=1.0)]
    >>> from ir_measures import ScoredDoc
    >>> as_run([ScoredDoc("q", "a", 1.0), ScoredDoc("q", "b", 2.0)])
    RunTable(1 query, 2 documents)

    Args:
        given: a run of ours; a dictionary from query ids to ``{document id: score}`` or to ``(document id, score)``
            pairs; a data frame, or anything that has ``to_pandas``; ir_measures' ``ScoredDoc`` one by one; ranx's
            ``Run``; or a file.
        name: what messages call it.
        columns: what a frame calls ``query_id``, ``doc_id``, ``score`` (and ``rank``), where it is not a usual name.

    Raises:
        UserError: another form, a score that is not a number, or a document that a query has twice.
    """
    if isinstance(given, RunTable):
        return given
    if isinstance(given, str | Path):
        return read_run(given)
    if type(given).__module__.startswith("ranx"):
        given = given.to_dict()
    if hasattr(given, "to_pandas"):
        given = given.to_pandas()
    empty: list[str] = []
    if isinstance(given, Mapping):
        rows = _of_mapping(given, name)
        empty = [checked_id(query, name) for query, ranked in given.items() if not len(ranked)]
    elif hasattr(given, "itertuples"):
        found = named_columns(given, FIELDS | some_names("rank"), columns, name, optional=["rank"])
        rows = found["query_id"], found["doc_id"], found["score"], found.get("rank")
    elif isinstance(given, Iterable):
        try:
            listed = [(one.query_id, one.doc_id, one.score) for one in given]
        except AttributeError as error:
            raise UserError(f"{name}: {error}; expected objects with query_id, doc_id and score") from error
        rows = [row[0] for row in listed], [row[1] for row in listed], [row[2] for row in listed], None
    else:
        raise UserError(f"{name}: {type(given).__name__} is not a run; give a dictionary, a data frame or a file")
    return _table(rows, empty, name)


def _of_mapping(given: Mapping[Any, Any], name: str) -> Rows:
    queries, documents, scores, ranks = [], [], [], []
    ordered = not any(isinstance(ranked, Mapping) for ranked in given.values())
    for query, ranked in given.items():
        try:
            pairs = ranked.items() if isinstance(ranked, Mapping) else [(document, score) for document, score in ranked]
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{name}: query {str(query)!r}: expected documents with their scores, not {str(ranked)[:60]!r}"
            ) from error
        queries += [query] * len(pairs)
        documents += [document for document, _ in pairs]
        scores += [score for _, score in pairs]
        ranks += [*range(len(pairs))]
    return queries, documents, scores, ranks if ordered else None


def _table(rows: Rows, empty: list[str], name: str) -> RunTable:
    *ids_of_both, scores, ranks = rows
    queries, documents = (checked_ids(ids, lambda row: f"{name}: pair {row + 1}") for ids in ids_of_both)

    def where(row: int) -> str:
        return f"{name}: query {queries[row]!r}, document {documents[row]!r}"

    values = no_gaps(floats(scores, where, "score"), where)
    codes: dict[str, int] = {}
    numbers = np.array([codes.setdefault(query, len(codes)) for query in queries], np.int32)
    ids = np.array(documents, dtype=object)
    if ranks is None:  # as trec_eval: descending ids
        order = -np.argsort(np.argsort(ids, kind="stable"))
    else:
        order = no_gaps(floats(ranks, where, "rank"), where)
    for query in empty:
        codes.setdefault(query, len(codes))
    column = pa.chunked_array([pa.array(documents, pa.large_string())])
    try:
        return as_table(list(codes), numbers, column, order, values)
    except TwiceError as twice:
        raise UserError("{}: query {!r} has document {!r} twice; keep one".format(name, *twice.args)) from twice
