"""Queries from JSON lines, TSV or TREC topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rerank.collections.base import Query, joined
from rerank.collections.lines import field_text, is_json, read_json_lines, read_tab_lines
from rerank.collections.tagged import topics
from rerank.errors import UserError
from rerank.storage.files import read_lines


def read_queries_file(path: Path, fields: Sequence[str] | None = None) -> Iterator[Query]:
    """Stream the queries of a file in its order; an id that comes twice is refused.

    A file named ``.jsonl`` has an ``_id`` (or ``id``) and a ``text`` (or ``query``) a line; one that begins with ``<``
    has TREC topics, of which number and title are taken; any other has an id, a tab and a text a line. ``fields`` are
    the keys or tags that make the text in their place.
    """
    if is_json(path):
        records = _json_queries(path, fields)
    elif next(read_lines(path), (0, ""))[1].lstrip().startswith("<"):
        records = topics(path, fields)
    elif fields is not None:
        raise UserError(f"{path}: queries have one text and no fields to choose from; topics and JSON lines have")
    else:
        records = read_tab_lines(path)
    return unique_queries(records, path)


def unique_queries(records: Iterable[tuple[str, str, str]], path: Path) -> Iterator[Query]:
    """Queries from the place, id and text of each; an id that comes twice is refused, and a file without any."""
    first: dict[str, str] = {}
    for where, id, text in records:
        if id in first:
            raise UserError(f"{where}: query id {id!r} again, first at {first[id]}; ids are unique")
        first[id] = where
        yield Query(id, text)
    if not first:  # topics in other tags are no topics
        raise UserError(
            f"{path}: no queries in this file; expected lines of an id, a tab and a text, JSON lines, or TREC topics "
            "(<top> with <num> and <title>)"
        )


def _json_queries(path: Path, fields: Sequence[str] | None) -> Iterator[tuple[str, str, str]]:
    for where, id, record in read_json_lines(path):
        chosen = fields or [next((key for key in ("text", "query") if key in record), "text")]
        for key in chosen:
            if key not in record:
                raise UserError(f"{where}: no {key} among the keys {', '.join(record)}; expected {key!r}")
        yield where, id, joined(field_text(record[key], where, key) for key in chosen)
