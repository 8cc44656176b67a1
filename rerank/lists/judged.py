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
"""One in so many judged ids has to be known; and one in so many unknown ones has to look like a known one, since in a
part of a large collection a few do by chance."""
BLANKS = dict.fromkeys(map(ord, "\u00a0\u200b\u2060\ufeff \t"))


def plain(id: str) -> str:
    r"""An id without what gets lost on the way: leading zeros, case, blanks.

    >>> plain("007"), plain("FT911-3"), plain("\ufeff0")
    ('7', 'ft911-3', '0')
    """
    id = id.translate(BLANKS).casefold()
    return id.lstrip("0") or id[-1:]


def check_queries(queries: Sequence[Query], qrels: Qrels | None, name: str) -> None:
    """Count queries without text, and judged queries that are not asked; refuse judgments of other queries.

    Judgments of many queries are fine for a few of them, and a few judgments for many queries.

    Raises:
        UserError: hardly any query is judged and hardly any judged query is known, or ids differ in their spelling.
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
    _check_spelling("queries", unknown, _alike(unknown, known), name)
    if not common:
        raise UserError(f"no query of {name} is judged in the qrels; are they of another collection?")
    if SHARE * common < min(len(qrels), len(known)):
        raise UserError(
            f"{name}: only {common} of {len(qrels)} judged queries are among its {len(known)}, {unknown[0]!r} is not; "
            "are the judgments of another collection?"
        )
    log.warning(
        "%s: %d of %d judged queries are not asked, e.g. %r; left out", name, len(unknown), len(qrels), unknown[0]
    )


class JudgedDocuments:
    """Which judged documents a collection has, as its ids pass by.

    It holds the judged ids of the queries that are asked.
    """

    def __init__(self, qrels: Qrels | None, queries: Iterable[str]) -> None:
        judged = (qrels or {}).get
        self._left = Counter(id for query in queries for id in judged(query, ()))
        self._total = len(self._left)
        self._plain = set(map(plain, self._left))
        self._met: dict[str, str] = {}  # what looks like a judged document, or is one

    @property
    def ids(self) -> Ids[str]:
        """The judged ids that were not seen so far."""
        return self._left.keys()

    def see(self, ids: Iterable[str]) -> None:
        """Take notice of documents that there are."""
        if not self._left:
            return
        for id in ids:
            self._left.pop(id, None)
            if (key := plain(id)) in self._plain:
                self._met[key] = id

    def check(self, name: str, *, whole: bool = True) -> None:
        """Count the judgments of documents that were not seen; refuse judgments of another collection.

        Args:
            name: of the collection.
            whole: whether all documents of the collection that are judged were seen. Of lists of hits there is no more
                than their hits, of which it is enough that one is judged.

        Raises:
            UserError: hardly any judged document was seen, or ids differ in their spelling.
        """
        if not self._left:
            return
        known = self._total - len(self._left)
        alike = _alike(self._left, self._met.values())
        if 100 * len(alike) >= known:  # fewer, among so many that are known, are documents of their own
            _check_spelling("documents", self._left, alike, name)
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


def _alike(unknown: Iterable[str], known: Iterable[str]) -> list[tuple[str, str]]:
    """Unknown ids with the known ids that they look like."""
    spelt = {plain(id): id for id in known}
    return [(id, spelt[plain(id)]) for id in unknown if plain(id) in spelt]


def _check_spelling(what: str, unknown: Ids[str], alike: Sequence[tuple[str, str]], name: str) -> None:
    if alike and SHARE * len(alike) >= len(unknown):
        raise UserError(
            f"{name}: {len(alike)} of {len(unknown)} judged {what} that it lacks are there but for leading zeros, case "
            f"or blanks; these are not the same ids, for example {alike[0][0]!r} and {alike[0][1]!r}"
        )
