"""What a collection is: documents, queries and judgments behind one small protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
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


class Collection(Protocol):
    """Documents, queries and, where there are any, judgments.

    Attributes:
        name: the name that opens it again, see `rerank.collections.open_collection`.
    """

    name: str

    def documents(self) -> Iterator[Document]:
        """Stream the documents: no collection ever sits in memory. Empty ones are kept."""

    def queries(self) -> Iterator[Query]:
        """The queries in the order of their file."""

    def qrels(self) -> Qrels | None:
        """The judgments, or None where the collection has none."""

    def document_count(self) -> int | None:
        """About how many documents there are, for progress bars; None where telling is costly."""

    def fingerprint(self) -> str:
        """A hex digest that changes when the documents or the chosen fields change."""


@runtime_checkable
class ById(Protocol):
    """What a collection has, too, if documents can be looked up in it."""

    def cheaper_by_id(self, wanted: int) -> bool:
        """Whether it is cheaper to look up so many documents than to stream all."""

    def documents_by_id(self, ids: Set[str]) -> Iterator[Document]:
        """Those of these documents that there are, in the order in which ``documents`` has them."""


def checked_id(value: object, where: str) -> str:
    """An id as a string; refused when missing, empty or holding white space, which run files cannot express."""
    text = str(value) if isinstance(value, str | int | np.integer) and not isinstance(value, bool) else ""
    if not text:
        there = "" if value is None or value == "" else f", but {str(value)[:50]!r} ({type(value).__name__})"
        raise UserError(f"{where}: no id{there}; expected a string or a whole number")
    if len(text.split()) != 1 or text != text.strip():
        raise UserError(f"{where}: the id {text!r} holds white space, which run files cannot express; take it out")
    if encodable(text) != text:
        raise UserError(f"{where}: the id {text!r} holds half of a character (a lone surrogate), which is no text")
    return text


def checked_ids(values: Iterable[object], where: Callable[[int], str]) -> list[str]:
    """Ids as strings; see `checked_id`."""
    return [
        # Most ids are plainly in order, which is quicker to see.
        value if type(value) is str and value.isalnum() else checked_id(value, where(i))
        for i, value in enumerate(values)
    ]


def checked_text(value: object, where: str) -> str:
    """A text; refused when it is missing or no text. It may be empty."""
    if not isinstance(value, str | int | np.integer) or isinstance(value, bool):
        raise UserError(f"{where}: no text, but {str(value)[:50]!r} ({type(value).__name__}); expected a string")
    return encodable(str(value))


def joined(values: Iterable[object]) -> str:
    """The text of a document: its fields stripped, the empty ones left out, one a line."""
    return encodable("\n".join(part for value in values if value is not None and (part := str(value).strip())))


def encodable(text: str) -> str:
    """A text without halves of surrogate pairs, which JSON's escapes can spell and UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode(errors="replace")
