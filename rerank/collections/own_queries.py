"""Pseudo-queries: a collection's titles, to train on without judgments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from rerank.collections.base import Collection, Document, Qrels, Query
from rerank.progress import log
from rerank.storage.files import digest

WORDS = range(3, 65)
"""Possible numbers of words in a query."""

REST = 5
"""Words that a document has at least without its query."""


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
