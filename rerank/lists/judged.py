"""Whether judgments and a collection speak of the same documents and queries: what one lacks is counted, or refused."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection as Ids
from collections.abc import Iterable, Sequence

from rerank.collections import Qrels, Query
from rerank.errors import UserError

log = logging.getLogger("rerank")

SHARE = 10
"""One in so many judged ids has to be known."""


def check_queries(queries: Sequence[Query], qrels: Qrels | None, name: str) -> None:
    """Count queries without text, and judged queries that are not asked; refuse judgments of other queries.

    Judgments of many queries are fine for a few of them, and a few judgments for many queries.
    """
    if empty := [query.id for query in queries if not query.text.strip()]:
        log.warning("%s: %d queries have no text, e.g. %r", name, len(empty), empty[0])
    if not qrels:
        return
    known = {query.id for query in queries}
    unknown = [id for id in qrels if id not in known]
    common = len(qrels) - len(unknown)
    if not unknown:
        return
    if not common:
        raise UserError(f"no query of {name} is judged in the qrels; are they of another collection?")
    if SHARE * common < min(len(qrels), len(known)):
        raise UserError(
            f"{name}: only {common} of {len(qrels)} judged queries are among its {len(known)}, {unknown[0]!r} is not; "
            "are the judgments of another collection?"
        )
    log.warning(
        "%s: %d of %d judged queries were not searched, e.g. %r; left out", name, len(unknown), len(qrels), unknown[0]
    )


class JudgedDocuments:
    """Which judged documents a collection has, as its ids pass by.

    It holds the judged ids of the queries that are asked.
    """

    def __init__(self, qrels: Qrels | None, queries: Iterable[str]) -> None:
        judged = (qrels or {}).get
        self._left = Counter(id for query in queries for id in judged(query, ()))
        self._total = len(self._left)

    @property
    def ids(self) -> Ids[str]:
        """The judged ids that were not seen so far."""
        return self._left.keys()

    def see(self, id: str) -> None:
        """Take notice of a document that there is."""
        self._left.pop(id, None)

    def check(self, name: str, *, whole: bool = True) -> None:
        """Count the judgments of documents that were not seen; refuse judgments of another collection.

        Args:
            name: of the collection.
            whole: whether all documents of the collection that are judged were seen. Of lists of hits there is no more
                than their hits, of which it is enough that one is judged.
        """
        if not self._left:
            return
        known = self._total - len(self._left)
        example = min(self._left)
        if SHARE * known < self._total if whole else not known:
            raise UserError(
                f"{name}: has only {known} of the {self._total} documents that are judged, and not {example!r}; are "
                "the judgments of another collection?"
            )
        log.warning(
            "%s: %d judgments are of documents that %s, e.g. %r",
            name,
            sum(self._left.values()),
            "the collection lacks" if whole else "are no candidates",
            example,
        )
