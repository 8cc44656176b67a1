"""Lines of JSON and tab-separated files, with the place of each for messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rerank.collections.base import Document, checked_id, joined
from rerank.errors import UserError, nearest
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


def read_json_lines(path: Path) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield each line's place, id and object."""
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        record = json_object(line, where, '{"_id": "7", "text": "…"}')
        key = next((key for key in ID_KEYS if key in record), None)
        if key is None:
            raise UserError(f"{where}: no id among the keys {', '.join(record) or '(none)'}; expected one named '_id'")
        yield where, checked_id(record[key], where), record


def read_tab_lines(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield each line's place, id and text."""
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        columns = line.split("\t")
        if len(columns) != 2:
            raise UserError(f"{where}: {len(columns)} columns; expected two, an id and a text (for more, use JSONL)")
        if number == 1 and HEADER_WORDS.issuperset(column.strip().lower() for column in columns):
            raise UserError(f"{where}: {line!r} is a header, not an id and a text; take the line out")
        yield where, checked_id(columns[0], where), joined(columns[1:])


def field_text(value: object, where: str, field: str) -> str:
    """Return a field's value as text: a string, a number, or a list of these, one a line."""
    if isinstance(value, list):
        return joined(field_text(part, where, field) for part in value)
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
    return joined(field_text(record.get(key), where, key) for key in fields)


class ChosenFields:
    """The fields that make a document's text, and the fields that documents have."""

    def __init__(self, fields: Sequence[str] | None):
        self.fields = fields
        self._seen: set[str] = set()

    def note(self, keys: Iterable[str]) -> None:
        """Remember the fields of a document."""
        if self.fields and not self._seen.issuperset(self.fields):
            self._seen.update(keys)

    def check(self, source: str) -> None:
        """Refuse a chosen field that no document had, once all have been read."""
        for name in self.fields or ():
            if name not in self._seen:
                known = ", ".join(sorted(self._seen)) or "none"
                raise UserError(
                    f"{source}: no document has a field {name!r}{nearest(name, self._seen)}; fields: {known}"
                )


def json_documents(path: Path, fields: Sequence[str] | None) -> Iterator[Document]:
    """Yield the document of each line of a JSON-lines file."""
    chosen = ChosenFields(fields)
    for where, id, record in read_json_lines(path):
        chosen.note(record)
        yield Document(id, json_text(record, fields, where))
    chosen.check(str(path))


def tab_documents(path: Path, fields: Sequence[str] | None) -> Iterator[Document]:
    """Yield the document of each line of a tab-separated file (id, text)."""
    if fields is not None and list(fields) != ["text"]:
        raise UserError(f"{path}: a TSV has one field, 'text', not {', '.join(fields)}; for more, use JSONL")
    for _, id, text in read_tab_lines(path):
        yield Document(id, text)
