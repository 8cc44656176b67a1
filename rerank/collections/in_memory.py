"""Collections in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rerank.collections.base import Document, Qrels, Query, checked_id, checked_text, joined
from rerank.collections.names import as_qrels
from rerank.errors import UserError
from rerank.storage.files import digest


class Texts:
    """Documents, queries and judgments in memory.

    >>> own = Texts({"d1": "a wing gives lift", "d2": "a jet engine"}, {"q1": "what is a wing"}, {"q1": {"d1": 1}})
    >>> [document.id for document in own.documents()], own.qrels()
    (['d1', 'd2'], {'q1': {'d1': 1}})

    Args:
        documents: texts by id, such as ``dict(zip(frame["doc_id"], frame["text"]))``.
        queries: texts of queries by id.
        qrels: judgments, in any form that :func:`rerank.collections.as_qrels` takes; None if there are none.
        name: what messages call the collection.

    Raises:
        UserError: no texts, or an id that is not one.
    """

    def __init__(
        self, documents: Mapping[str, str], queries: Mapping[str, str], qrels: Any = None, name: str = "texts"
    ) -> None:
        self.name = name
        self._documents = _texts(documents, f"{name}: documents")
        self._queries = _texts(queries, f"{name}: queries")
        self._qrels = None if qrels is None else as_qrels(qrels, name=f"{name}: qrels")

    def documents(self) -> Iterator[Document]:
        return (Document(id, text) for id, text in self._documents.items())

    def queries(self) -> Iterator[Query]:
        return (Query(id, text) for id, text in self._queries.items())

    def qrels(self) -> Qrels | None:
        return self._qrels

    def fingerprint(self) -> str:
        return digest("texts", json.dumps(self._documents))


def _texts(given: Any, name: str) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise UserError(f"{name}: expected texts by id, such as dict(zip(ids, texts)), not {type(given).__name__}")
    return {checked_id(id, name): joined([checked_text(text, f"{name}: id {id!r}")]) for id, text in given.items()}
