"""Documents and queries in JSON lines, tab-separated files and TREC topics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

from rerank.collections.base import Document, Query, checked_id, joined
from rerank.collections.tagged import topics
from rerank.errors import UserError
from rerank.storage.files import read_lines

ID_KEYS = ("_id", "id", "doc_id", "docid", "docno", "corpus-id", "pid", "query_id", "qid", "query-id", "q_id")
TEXT_KEYS = ("text", "contents", "content", "passage", "document", "answer", "segment")
HEADER_WORDS = {*ID_KEYS, *TEXT_KEYS, "doc-id", "topic", "number", "query", "question", "title", "body"}


def is_json(path: Path) -> bool:
    """Return True if a file's name says JSON lines, compressed or not."""
    return ".jsonl" in path.suffixes[-2:]


def json_object(line: str, where: str, expected: str) -> dict[str, object]:
    """Parse the object of a line; an error shows an example of a right one."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error}); expected a line like {expected}") from error
    if not isinstance(record, dict):
        raise UserError(f"{where}: not a JSON object; expected a line like {expected}")
    return record


def _json_lines(path: Path) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield each line's place, id and object."""
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        record = json_object(line, where, '{"_id": "7", "text": "…"}')
        key = next((key for key in ID_KEYS if key in record), None)
        if key is None:
            raise UserError(f"{where}: no id among the keys {', '.join(record) or '(none)'}; expected one named '_id'")
        yield where, checked_id(record[key], where), record


def _tab_lines(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield each line's place, id and text."""
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        columns = line.split("\t")
        if len(columns) != 2:
            raise UserError(f"{where}: {len(columns)} columns; expected two, an id and a text (for more, use JSONL)")
        if number == 1 and HEADER_WORDS.issuperset(column.strip().lower() for column in columns):
            raise UserError(f"{where}: {line!r} is a header, not an id and a text; take the line out")
        yield where, checked_id(columns[0], where), joined(columns[1:])


def _field_text(value: object, where: str, field: str) -> str:
    if isinstance(value, list):
        return joined(_field_text(part, where, field) for part in value)
    if value is None or isinstance(value, str | int | float):
        return "" if value is None else str(value)
    raise UserError(f"{where}: {field!r} is {type(value).__name__}; expected a string")


def json_text(record: Mapping[str, object], fields: Sequence[str] | None, where: str) -> str:
    """Return the text of a JSON document: its ``fields``, by default ``title``, if it has one, and ``text``."""
    if fields is None:
        body = next((key for key in TEXT_KEYS if key in record), None)
        if body is None:
            raise UserError(f"{where}: no text among the keys {', '.join(record)}; expected 'text', or choose fields")
        fields = ("title", body)
    return joined(_field_text(record.get(key), where, key) for key in fields)


def check_found(lacking: Set[str], source: str | Path) -> None:
    """Raise a UserError if some chosen fields are in no document."""
    if lacking:
        raise UserError(f"{source}: no document has a field {min(lacking)!r}; choose other fields")


def read_documents(path: Path, fields: Sequence[str] | None) -> Iterator[Document]:
    """Yield the document of each line of a JSON-lines file, or of a tab-separated one (id, text)."""
    lacking = set(fields or ())
    if is_json(path):
        for where, id, record in _json_lines(path):
            lacking -= record.keys()
            yield Document(id, json_text(record, fields, where))
    else:
        lacking.discard("text")
        for _, id, text in _tab_lines(path):
            yield Document(id, text)
    check_found(lacking, path)


def read_queries_file(path: Path, fields: Sequence[str] | None = None) -> Iterator[Query]:
    """Yield the queries of a file in its order.

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
        records = _tab_lines(path)
    return _unique(records, path)


def _unique(records: Iterator[tuple[str, str, str]], path: Path) -> Iterator[Query]:
    first: dict[str, str] = {}
    for where, id, text in records:
        if id in first:
            raise UserError(f"{where}: query id {id!r} again, first at {first[id]}; ids are unique")
        first[id] = where
        yield Query(id, text)
    if not first:  # topics in other tags are no topics
        raise UserError(f"{path}: no queries in this file; expected ids, tabs and texts, JSON lines, or TREC topics")


def _json_queries(path: Path, fields: Sequence[str] | None) -> Iterator[tuple[str, str, str]]:
    for where, id, record in _json_lines(path):
        chosen = fields or [next((key for key in ("text", "query") if key in record), "text")]
        for key in chosen:
            if key not in record:
                raise UserError(f"{where}: no {key} among the keys {', '.join(record)}; expected {key!r}")
        yield where, id, joined(_field_text(record[key], where, key) for key in chosen)
