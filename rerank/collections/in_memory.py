"""What one has in memory: judgments, and a collection, as dictionaries, data frames or other libraries' objects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rerank.collections.base import Document, Qrels, Query, checked_id, checked_ids, checked_text, joined
from rerank.collections.names import read_qrels
from rerank.collections.queries import HIGHEST
from rerank.collections.records import NAMES, named_columns, some_names
from rerank.errors import UserError
from rerank.storage.files import digest

FIELDS = some_names("query_id", "doc_id") | {"grade": (*NAMES["grade"], *NAMES["score"])}
"""What the columns of judgments are called: BEIR calls grades ``score``."""

USUAL = {
    "doc_id": {"doc_id": (*NAMES["doc_id"], "id"), "text": (*NAMES["text"], "body", "title")},
    "query_id": {"query_id": (*NAMES["query_id"], "id", "_id"), "text": ("text", *NAMES["query"], "title")},
}
"""What the columns of documents and of queries may be called."""


def as_qrels(given: Any, columns: Mapping[str, str] | None = None, name: str = "qrels") -> Qrels:
    """Judgments as a dictionary, from whatever they are in.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"topic": [1, 1], "docno": ["a", "b"], "label": [2, 0]})
    >>> as_qrels(frame, {"query_id": "topic"})
    {'1': {'a': 2, 'b': 0}}

    Args:
        given: a dictionary of dictionaries; a data frame, or anything that has ``to_pandas`` (a Hugging Face data set,
            a Polars frame, an Arrow table); ir_measures' or ir_datasets' qrels, one by one; ranx's ``Qrels``; a file or
            the name of a collection.
        columns: what a frame calls ``query_id``, ``doc_id`` and ``grade``, where it is not one of the usual names.
        name: what messages call them.

    Raises:
        UserError: another form, a column that is not there, or a grade that is no whole number.
    """
    if isinstance(given, str | Path):
        return read_qrels(given)
    if isinstance(given, Mapping):
        for query, judged in given.items():
            if not isinstance(judged, Mapping):
                raise UserError(
                    f"{name}: query {query!r}: expected a dictionary from document ids to grades, not a "
                    f"{type(judged).__name__} (judgments are given before runs)"
                )
        qrels = _checked([(q, d, grade) for q, judged in given.items() for d, grade in judged.items()], name)
        for query in given:
            qrels.setdefault(checked_id(query, name), {})
        return qrels
    if type(given).__module__.startswith("ranx"):
        return as_qrels(given.to_dict(), name=name)
    if hasattr(given, "to_pandas"):
        given = given.to_pandas()
    if hasattr(given, "itertuples"):
        return _checked(zip(*named_columns(given, FIELDS, columns, name).values(), strict=True), name)
    if isinstance(given, Iterable):
        try:
            return _checked([(one.query_id, one.doc_id, one.relevance) for one in given], name)
        except AttributeError as error:
            raise UserError(f"{name}: {error}; expected objects with query_id, doc_id and relevance") from error
    raise UserError(f"{name}: {type(given).__name__} holds no judgments; give a dictionary, a data frame or a file")


def _checked(rows: Iterable[tuple[Any, Any, Any]], name: str) -> Qrels:
    rows = list(rows)
    columns = ((row[i] for row in rows) for i in (0, 1))
    queries, documents = (checked_ids(ids, lambda number: f"{name}: judgment {number + 1}") for ids in columns)
    qrels: Qrels = {}
    for query, document, (_, _, grade) in zip(queries, documents, rows, strict=True):
        try:
            whole = int(grade)
            right = bool(whole == grade) and abs(whole) <= HIGHEST
        except (TypeError, ValueError, OverflowError):
            right = False
        if not right:
            pair = f"query {query!r}, document {document!r}"
            raise UserError(f"{name}: {pair}: grade {grade!r}; expected a whole number up to {HIGHEST}")
        judged = qrels.setdefault(query, {})
        if judged.setdefault(document, whole) != whole:
            raise UserError(f"{name}: query {query!r} has document {document!r} twice, with two grades")
    return qrels


class Texts:
    """Documents, queries and judgments that are in memory already.

    >>> own = Texts({"d1": "a wing gives lift", "d2": "a jet engine"}, {"q1": "what is a wing"}, {"q1": {"d1": 1}})
    >>> [document.id for document in own.documents()], own.qrels()
    (['d1', 'd2'], {'q1': {'d1': 1}})

    Args:
        documents: texts by id; or a data frame (or what has ``to_pandas``) with a column of ids and one of texts.
        queries: the same of queries.
        qrels: judgments, in any form that :func:`rerank.collections.in_memory.as_qrels` takes; None where there are
            none.
        name: what messages call the collection.
        columns: what frames call ``doc_id``, ``query_id`` and ``text``, where it is not a usual name.

    Raises:
        UserError: no texts, an id that comes twice, or a column that is not there.
    """

    def __init__(
        self,
        documents: Any,
        queries: Any,
        qrels: Any = None,
        name: str = "texts",
        columns: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._documents = _texts(documents, "doc_id", f"{name}: documents", columns or {})
        self._queries = _texts(queries, "query_id", f"{name}: queries", columns or {})
        self._qrels = None if qrels is None else as_qrels(qrels, name=f"{name}: qrels")

    def documents(self) -> Iterator[Document]:
        return (Document(id, text) for id, text in self._documents.items())

    def queries(self) -> Iterator[Query]:
        return (Query(id, text) for id, text in self._queries.items())

    def qrels(self) -> Qrels | None:
        return self._qrels

    def document_count(self) -> int:
        return len(self._documents)

    def fingerprint(self) -> str:
        return digest("texts", json.dumps(self._documents))


def _texts(given: Any, key: str, name: str, columns: Mapping[str, str]) -> dict[str, str]:
    if hasattr(given, "to_pandas"):
        given = given.to_pandas()
    if hasattr(given, "itertuples"):
        fields = USUAL[key]
        told = {field: column for field, column in columns.items() if field in fields and column in given.columns}
        found = named_columns(given, fields, told, name)
        pairs = zip(found[key], found["text"], strict=True)
    elif isinstance(given, Mapping):
        pairs = zip(given.keys(), given.values(), strict=True)
    else:
        raise UserError(f"{name}: expected texts by id or a data frame, not {type(given).__name__}")
    texts: dict[str, str] = {}
    for number, (value, text) in enumerate(pairs, 1):
        id = checked_id(value, f"{name}: row {number}")
        if id in texts:
            raise UserError(f"{name}: id {id!r} comes twice; ids are unique")
        texts[id] = joined([checked_text(text, f"{name}: row {number}, id {id!r}")])
    if not texts:
        raise UserError(f"{name}: there are none")
    return texts
