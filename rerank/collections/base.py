"""The protocol of collections: documents, queries and judgments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from rerank.errors import UserError

Qrels: TypeAlias = dict[str, dict[str, int]]
"""Judgments: query id -> document id -> grade, as given (negative grades too)."""


class Document(NamedTuple):
    """A document: its id and its text, which may be empty."""

    id: str
    text: str


class Query(NamedTuple):
    """A query: its id and its text."""

    id: str
    text: str


@runtime_checkable
class Collection(Protocol):
    """Documents, queries and, where there are any, judgments.

    Attributes:
        name: the name that opens it again, see `rerank.collections.open_collection`.
    """

    name: str

    def documents(self) -> Iterator[Document]:
        """Stream the documents, empty ones included."""

    def queries(self) -> Iterator[Query]:
        """Yield the queries in the order of their file."""

    def qrels(self) -> Qrels | None:
        """Return the judgments, or None if the collection has none."""

    def fingerprint(self) -> str:
        """Return a hex digest that changes when the documents change."""


def checked_id(value: object, where: str) -> str:
    """Return an id as a string; refuse one that is missing, or that run files cannot express."""
    text = str(value) if isinstance(value, str | int | np.integer) and not isinstance(value, bool) else ""
    if not text:
        there = "" if value is None or isinstance(value, str) else f", but {str(value)[:50]!r} ({type(value).__name__})"
        raise UserError(f"{where}: no id{there}; expected a string or a whole number")
    if len(text.split()) != 1 or text != text.strip():
        raise UserError(f"{where}: the id {text!r} holds white space, which run files cannot express; take it out")
    if text.startswith("#"):
        raise UserError(f"{where}: the id {text!r} begins with #, as comments in TREC's files do; take it out")
    if encodable(text) != text:
        raise UserError(f"{where}: the id {text!r} has an unpaired surrogate, which is not valid text")
    return text


def checked_text(value: object, where: str) -> str:
    """Return a text, which may be empty; refuse a missing one, or another type."""
    if not isinstance(value, str | int | np.integer) or isinstance(value, bool):
        raise UserError(f"{where}: no text, but {str(value)[:50]!r} ({type(value).__name__}); expected a string")
    return encodable(str(value))


def joined(values: Iterable[object]) -> str:
    """Join the fields of a document, stripped, one a line, without empty ones."""
    return encodable("\n".join(part for value in values if value is not None and (part := str(value).strip())))


def encodable(text: str) -> str:
    """Replace halves of surrogate pairs, which JSON's escapes can spell and UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode(errors="replace")
