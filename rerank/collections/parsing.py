"""JSON lines and tab-separated files: documents and queries, with the place of each for error messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from rerank.collections.base import Document, Query, checked_id, joined
from rerank.errors import UserError, nearest
from rerank.files import open_binary, read_lines

ID_KEYS = ("_id", "id", "docid", "doc_id", "docno", "qid", "query_id")
TEXT_KEYS = ("text", "contents")


def find_file(folder: Path, names: Sequence[str]) -> Path | None:
    """The one file of these names, plain or compressed, in a folder; None if there is none, refused if several."""
    found = [path for name in names for end in ("", ".gz", ".xz") if (path := folder / (name + end)).is_file()]
    if len(found) > 1:
        raise UserError(f"{folder}: both {found[0].name} and {found[1].name}; keep the one that is meant")
    return found[0] if found else None


def is_json(path: Path) -> bool:
    """Whether a file's name says JSON lines, compressed or not."""
    return ".jsonl" in path.suffixes[-2:]


def read_json_lines(path: Path) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Each line's place, id and object."""
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
        except ValueError as error:
            raise UserError(f'{where}: not JSON ({error}); expected a line like {{"_id": "7", "text": "…"}}') from error
        if not isinstance(record, dict):
            raise UserError(f'{where}: not a JSON object; expected a line like {{"_id": "7", "text": "…"}}')
        key = next((key for key in ID_KEYS if key in record), None)
        if key is None:
            raise UserError(f"{where}: no id among the keys {', '.join(record) or '(none)'}; expected one named '_id'")
        yield where, checked_id(record[key], where), record


def read_tab_lines(path: Path) -> Iterator[tuple[str, str, str]]:
    """Each line's place, id and text."""
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        columns = line.split("\t")
        if len(columns) != 2:
            raise UserError(
                f"{where}: {len(columns)} columns; expected an id, a tab and a text without tabs (for more, use JSONL)"
            )
        yield where, checked_id(columns[0], where), joined(columns[1:])


def field_text(value: object, where: str, field: str) -> str:
    """A field's value as text: a string, a number, or a list of these, one a line."""
    if isinstance(value, list):
        return joined(field_text(part, where, field) for part in value)
    if value is None or isinstance(value, str | int | float):
        return "" if value is None else str(value)
    raise UserError(f"{where}: {field!r} is no text but {type(value).__name__}; expected a string")


def json_documents(path: Path, fields: Sequence[str] | None) -> Iterator[tuple[str, Document]]:
    """Documents of a JSON-lines file and their places.

    Args:
        path: the file.
        fields: the keys whose values make the text, in this order; by default ``title`` where there is one, and
            ``text`` (or ``contents``), which every line must have.

    A chosen field that no document has is refused at the end.
    """
    unseen = dict.fromkeys(fields or ())
    known: dict[str, None] = {}
    for where, id, record in read_json_lines(path):
        chosen = fields
        if chosen is None:
            body = next((key for key in TEXT_KEYS if key in record), None)
            if body is None:
                raise UserError(
                    f"{where}: no text among the keys {', '.join(record)}; expected 'text', or choose fields"
                )
            chosen = ("title", body)
        elif unseen:
            known.update(dict.fromkeys(record))
            for key in [key for key in unseen if key in record]:
                del unseen[key]
        yield where, Document(id, joined(field_text(record.get(key), where, key) for key in chosen))
    if unseen:
        field = next(iter(unseen))
        raise UserError(f"{path}: no document has the field {field!r}{nearest(field, known)}")


def tab_documents(path: Path, fields: Sequence[str] | None) -> Iterator[tuple[str, Document]]:
    """Documents of a tab-separated file (id, text) and their places."""
    if fields is not None and tuple(fields) != ("text",):
        raise UserError(f"{path}: a TSV has one field, 'text', not {', '.join(fields)}; for more, use JSONL")
    for where, id, text in read_tab_lines(path):
        yield where, Document(id, text)


def read_queries(path: Path) -> Iterator[Query]:
    """Queries of a JSON-lines or tab-separated file, in its order; an id that comes twice is refused."""
    first: dict[str, str] = {}
    for where, id, text in _query_lines(path):
        if id in first:
            raise UserError(f"{where}: query id {id!r} again, first at {first[id]}; ids are unique")
        first[id] = where
        yield Query(id, text)


def _query_lines(path: Path) -> Iterator[tuple[str, str, str]]:
    if not is_json(path):
        yield from read_tab_lines(path)
        return
    for where, id, record in read_json_lines(path):
        key = next((key for key in ("text", "query") if key in record), None)
        if key is None:
            raise UserError(f"{where}: no text among the keys {', '.join(record)}; expected 'text'")
        yield where, id, joined([field_text(record[key], where, key)])


def count_lines(path: Path) -> int | None:
    """How many lines a plain file has; None for a compressed one, where counting costs as much as reading."""
    if path.suffix in (".gz", ".xz"):
        return None
    with open_binary(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
