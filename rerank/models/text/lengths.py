"""How many word pieces of a query and of a document are kept."""

from __future__ import annotations

from rerank.models.text.long import Long

DEFAULT_LENGTHS = (64, 256)
"""Word pieces of a query and of a document that is cut."""

DEFAULT_LONG = 800
"""Word pieces of a document that is read in chunks (CEDR's)."""


def resolve_lengths(
    room: int,
    query: int | None,
    document: int | None,
    fresh: bool,
    long: Long,
    usual: tuple[int, int] = DEFAULT_LENGTHS,
) -> tuple[int, int]:
    """Word pieces of queries and of documents.

    Args:
        room: tokens of a pair beside the special ones.
        query: those of a query, where they are given or saved.
        document: those of a document, where they are given or saved.
        fresh: whether the model has no trained head yet.
        long: what becomes of long documents.
        usual: those of a query and of a document of a fresh model that cuts.
    """
    query = query or min(usual[0], max(1, room // 4))
    if document:
        return query, document
    if long != "truncate":
        return query, DEFAULT_LONG
    return query, min(usual[1], room - query) if fresh else room - query
