"""Check that judgments and a collection have the same documents and queries: count differences, or refuse them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set

from rerank.collections import Qrels, Query
from rerank.errors import UserError
from rerank.progress import log

SHARE = 10
"""One of this many judged ids has to be known."""


def check_queries(queries: Sequence[Query], qrels: Qrels, name: str) -> None:
    """Count queries without text and judged queries that are not searched; refuse judgments of other queries.

    Judgments of many queries are fine for a few of them, and a few judgments for many queries.
    """
    if empty := [query.id for query in queries if not query.text.strip()]:
        log.warning("%s: %d queries have no text, e.g. %r", name, len(empty), empty[0])
    known = {query.id for query in queries}
    if not (unknown := [id for id in qrels if id not in known]):
        return
    common = len(qrels) - len(unknown)
    if not common or SHARE * common < min(len(qrels), len(known)):
        found = f"only {common} of {len(qrels)} judged queries are among its {len(known)}, {unknown[0]!r} is not"
        raise UserError(f"{name}: {found}; are the judgments of another collection?")
    message = "%s: %d of %d judged queries were not searched, e.g. %r; left out"
    log.warning(message, name, len(unknown), len(qrels), unknown[0])


def judged_documents(qrels: Qrels, queries: Iterable[str]) -> Counter[str]:
    """Count the queries for which each document is judged."""
    return Counter(id for query in queries for id in qrels.get(query, ()))


def check_documents(judged: Counter[str], missing: Set[str], name: str, *, whole: bool = True) -> None:
    """Count the judgments of documents that are missing; refuse judgments of another collection.

    Of lists of hits, which are not the ``whole`` collection, it is enough that one is judged.
    """
    if not missing:
        return
    known, example = len(judged) - len(missing), min(missing)
    if SHARE * known < len(judged) if whole else not known:
        found = f"has only {known} of the {len(judged)} documents that are judged, and not {example!r}"
        raise UserError(f"{name}: {found}; are the judgments of another collection?")
    lacking = "the collection lacks" if whole else "are not candidates"
    count = sum(judged[id] for id in missing)
    log.warning("%s: %d judgments are of documents that %s, e.g. %r", name, count, lacking, example)
