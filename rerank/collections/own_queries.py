"""A collection's own titles, or first sentences, as queries: lists to train on where nobody has judged anything."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from heapq import nsmallest

from rerank.collections.base import Collection, Document, Qrels, Query
from rerank.errors import UserError
from rerank.progress import log
from rerank.storage.files import digest

WORDS = (3, 64)
"""Words that a query has at least and at most: what is shorter names nothing, what is longer is no title."""

REST = 5
"""Words that a document has at least without its title."""

SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[^a-z\s])|\n\s*\n")
"""Where a sentence ends: a full stop, and then white space and no small letter; or an empty line."""

HEADING = re.compile(r"[^\n]*[^\s.!?][^\S\n]*\n\s*\n")
"""A first line that is no sentence, and an empty line below it."""


def first_sentence(text: str) -> tuple[str, str]:
    """The first sentence of a text, and the others; a heading above it stays with these."""
    heading = HEADING.match(text)
    start = heading.end() if heading else 0
    first, *rest = SENTENCE.split(text[start:], maxsplit=1)
    return first, text[:start] + "".join(rest)


KINDS: dict[str, Callable[[str], tuple[str, str]]] = {
    "titles": lambda text: text.partition("\n")[::2],
    "first-sentences": first_sentence,
}
"""What can be taken from a document, by its text: the query, and what is left."""


class OwnQueries:
    r"""Another collection without its titles (or first sentences), which are its queries.

    The document that a title was taken from is relevant to it, and nothing else is known. All documents lose theirs,
    so that a relevant one looks like the others.

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
        for document in self.source.documents():
            yield Document(document.id, self._parts(document.text)[1])

    def queries(self) -> Iterator[Query]:
        """The titles that one document alone has, in the order of the documents, by the documents' ids."""
        yield from self._queries

    @cached_property
    def _queries(self) -> list[Query]:
        found: dict[str, str] = {}
        for document in self.source.documents():
            title, rest = self._parts(document.text)
            if WORDS[0] <= len(title.split()) <= WORDS[1] and len(rest.split()) >= REST:
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
        """The query that a document gives, empty where it gives none, and the document without it."""
        taken, rest = KINDS[self.kind](text)
        return (" ".join(taken.split()), rest.strip()) if rest.strip() else ("", text)


def own_queries(source: Collection, queries: object) -> OwnQueries | None:
    """The collection by its own queries, where words such as ``titles`` or ``titles:2000`` ask for it."""
    kind, colon, count = queries.partition(":") if isinstance(queries, str) else ("", "", "")
    if kind not in KINDS:
        return None
    if colon and not (count.isdecimal() and int(count)):
        raise UserError(f"queries: {queries}: expected a number of queries, such as {kind}:2000")
    return OwnQueries(source, kind, int(count) if colon else None)
