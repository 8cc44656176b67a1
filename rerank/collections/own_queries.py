"""Pseudo-queries: a collection's titles or first sentences, to train on without judgments."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from heapq import nsmallest

from rerank.collections.base import Collection, Document, Qrels, Query
from rerank.errors import UserError
from rerank.progress import log
from rerank.storage.files import digest

KINDS = ("titles", "first-sentences")
WORDS = range(3, 65)
"""Possible numbers of words in a query."""

REST = 5
"""Words that a document has at least without its query."""

# A sentence ends with a full stop and white space before anything but a small letter, or at an empty line.
SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[^a-z\s])|\n\s*\n")
# A heading is a first line without a full stop, above an empty line.
HEADING = re.compile(r"[^\n]*[^\s.!?][^\S\n]*\n\s*\n")


def first_sentence(text: str) -> tuple[str, str]:
    """Split off the first sentence of a text; a heading above it stays with the rest."""
    heading = HEADING.match(text)
    start = heading.end() if heading else 0
    first, *rest = SENTENCE.split(text[start:], maxsplit=1)
    return first, text[:start] + "".join(rest)


class OwnQueries:
    r"""Another collection whose titles (or first sentences) are its queries, and are removed from all documents.

    The document that a query was taken from is relevant to it; nothing else is judged.

    >>> from rerank import Texts
    >>> texts = {"1": "How lists are sorted\nTimsort merges runs that are sorted.", "2": "One line."}
    >>> own = OwnQueries(Texts(texts, {"q": ""}))
    >>> [query.text for query in own.queries()], [document.text for document in own.documents()]
    (['How lists are sorted'], ['Timsort merges runs that are sorted.', 'One line.'])
    """

    def __init__(self, source: Collection, kind: str = "titles", count: int | None = None) -> None:
        self.source, self.kind, self.count = source, kind, count
        self.name = f"{source.name} by its {kind}"

    def documents(self) -> Iterator[Document]:
        return (Document(document.id, self._parts(document.text)[1]) for document in self.source.documents())

    def queries(self) -> Iterator[Query]:
        """Yield the queries that a single document has, in the order and with the ids of the documents."""
        yield from self._queries

    @cached_property
    def _queries(self) -> list[Query]:
        found: dict[str, str] = {}
        for document in self.source.documents():
            title, rest = self._parts(document.text)
            if len(title.split()) in WORDS and len(rest.split()) >= REST:
                found[document.id] = title
        plain = {id: title.lower().rstrip(".") for id, title in found.items()}
        times = Counter(plain.values())
        alone = [Query(id, title) for id, title in found.items() if times[plain[id]] == 1]
        log.info("%s: %d documents have one of their own", self.name, len(alone))
        if self.count is None or self.count >= len(alone):
            return alone
        order = [hashlib.sha256(query.id.encode()).hexdigest() for query in alone]
        drawn = set(nsmallest(self.count, order))
        return [query for query, place in zip(alone, order, strict=True) if place in drawn]

    def qrels(self) -> Qrels:
        return {query.id: {query.id: 1} for query in self._queries}

    def document_count(self) -> int | None:
        return self.source.document_count()

    def fingerprint(self) -> str:
        return digest(self.source.fingerprint(), self.kind, "2")

    def _parts(self, text: str) -> tuple[str, str]:
        """Split a document into its query, which may be empty, and the rest."""
        taken, rest = text.partition("\n")[::2] if self.kind == "titles" else first_sentence(text)
        return (" ".join(taken.split()), rest.strip()) if rest.strip() else ("", text)


def own_queries(source: Collection, queries: object) -> OwnQueries | None:
    """Return the collection with its own queries if words such as ``titles`` or ``titles:2000`` ask for them."""
    kind, colon, count = queries.partition(":") if isinstance(queries, str) else ("", "", "")
    if kind not in KINDS:
        return None
    if colon and not (count.isdecimal() and int(count)):
        raise UserError(f"--queries: {queries}: expected a number of queries, such as {kind}:2000")
    return OwnQueries(source, kind, int(count) if colon else None)
