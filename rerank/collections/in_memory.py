"""Collections in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rerank.collections.base import Document, Qrels, Query, checked_id, checked_text, joined
from rerank.collections.names import as_qrels
from rerank.collections.records import NAMES, named_columns
from rerank.errors import UserError
from rerank.storage.files import digest

USUAL = {
    "doc_id": {"doc_id": (*NAMES["doc_id"], "id"), "text": (*NAMES["text"], "body", "title")},
    "query_id": {"query_id": (*NAMES["query_id"], "id", "_id"), "text": ("text", *NAMES["query"], "title")},
}
"""Usual names of the columns of documents and of queries."""


class Texts:
    """Documents, queries and judgments that are in memory already.

    >>> own = Texts({"d1": "a wing gives lift", "d2": "a jet engine"}, {"q1": "what is a wing"}, {"q1": {"d1": 1}})
    >>> [document.id for document in own.documents()], own.qrels()
    (['d1', 'd2'], {'q1': {'d1': 1}})

    Args:
        documents: texts by id; or a data frame (or what has ``to_pandas``) with a column of ids and one of texts.
        queries: the same of queries.
        qrels: judgments, in any form that :func:`rerank.collections.as_qrels` takes; None if there are none.
        name: what messages call the collection.
        columns: what frames call ``doc_id``, ``query_id`` and ``text``, if it is not a usual name.

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
    if isinstance(given, Mapping):
        pairs = zip(given.keys(), given.values(), strict=True)
    elif hasattr(given, "to_pandas") or hasattr(given, "itertuples"):
        told = {field: column for field, column in columns.items() if field in USUAL[key] and column in _columns(given)}
        found = named_columns(given, USUAL[key], told, name)
        pairs = zip(found[key], found["text"], strict=True)
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


def _columns(frame: Any) -> list[str]:
    return list(getattr(frame, "column_names", getattr(frame, "columns", [])))
