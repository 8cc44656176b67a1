"""Collections made in Python: texts in memory, and another collection whose titles are its queries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from rerank.collections.base import Collection, Document, Qrels, Query, checked_id, checked_text, joined
from rerank.collections.names import as_qrels
from rerank.errors import UserError
from rerank.progress import log
from rerank.storage.files import digest

WORDS = range(3, 65)
"""Possible numbers of words in a query."""

REST = 5
"""Words that a document has at least without its query."""


class Texts:
    """Documents, queries and judgments in memory.

    >>> own = Texts({"d1": "a wing gives lift", "d2": "a jet engine"}, {"q1": "what is a wing"}, {"q1": {"d1": 1}})
    >>> [document.id for document in own.documents()], own.qrels()
    (['d1', 'd2'], {'q1': {'d1': 1}})

    Args:
        documents: texts by id, such as ``dict(zip(frame["doc_id"], frame["text"]))``.
        queries: texts of queries by id.
        qrels: judgments, in any form that :func:`rerank.collections.as_qrels` takes; None if there are none.
        name: its name in messages.

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


class OwnQueries:
    r"""Another collection whose titles (first lines) are its queries, and are removed from all documents.

    The document that a query was taken from is relevant to it; nothing else is judged.

    >>> from rerank import Texts
    >>> texts = {"1": "How lists are sorted\nTimsort merges runs that are sorted.", "2": "One line."}
    >>> own = OwnQueries(Texts(texts, {"q": ""}))
    >>> [query.text for query in own.queries()], [document.text for document in own.documents()]
    (['How lists are sorted'], ['Timsort merges runs that are sorted.', 'One line.'])
    """

    def __init__(self, source: Collection) -> None:
        self.source = source
        self.name = f"{source.name} by its titles"

    def documents(self) -> Iterator[Document]:
        return (Document(document.id, _split(document.text)[1]) for document in self.source.documents())

    def queries(self) -> Iterator[Query]:
        """Yield the titles that a single document has, in the order and with the ids of the documents."""
        yield from self._queries

    @cached_property
    def _queries(self) -> list[Query]:
        titles = [(document.id, *_split(document.text)) for document in self.source.documents()]
        titles = [row for row in titles if len(row[1].split()) in WORDS and len(row[2].split()) >= REST]
        plain = [title.lower().rstrip(".") for _, title, _ in titles]
        times = Counter(plain)
        unique = [Query(id, title) for (id, title, _), key in zip(titles, plain, strict=True) if times[key] == 1]
        log.info("%s: %d documents have one of their own", self.name, len(unique))
        return unique

    def qrels(self) -> Qrels:
        return {query.id: {query.id: 1} for query in self._queries}

    def fingerprint(self) -> str:
        return digest(self.source.fingerprint(), "titles")


def _split(text: str) -> tuple[str, str]:
    """Split a document into its title, which may be empty, and the rest."""
    title, _, rest = text.partition("\n")
    return (" ".join(title.split()), rest.strip()) if rest.strip() else ("", text)
