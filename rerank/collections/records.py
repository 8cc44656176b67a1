"""Records and what their fields are called: JSON lines and tab-separated files, with the place of each for messages."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rerank.collections.base import Document, checked_id, joined
from rerank.errors import UserError, nearest
from rerank.storage.files import LONGEST_LINE, can_be_decompressed, decoded, open_binary, raw_lines, read_lines

if TYPE_CHECKING:
    import pandas as pd


NAMES: dict[str, tuple[str, ...]] = {
    "query_id": ("query_id", "qid", "query-id", "q_id"),
    "doc_id": ("doc_id", "docid", "docno", "corpus-id", "pid", "_id"),
    "query": ("query", "query_text", "question", "anchor"),
    "text": ("text", "contents", "content", "passage", "document", "answer", "docs"),
    "grade": ("grade", "relevance", "rel", "label", "labels"),
    "score": ("score", "_score"),
    "rank": ("rank",),
}
"""Ours first, then those of ir_datasets and ir-measures, Pyserini, PyTerrier, TIRA, BEIR, ranx, Elasticsearch and data
sets for training. Where several are there, the first one counts."""

ID_KEYS = tuple(dict.fromkeys(("_id", "id", *NAMES["doc_id"], *NAMES["query_id"])))
TEXT_KEYS = NAMES["text"]
HEADER_IDS = {*ID_KEYS, "doc-id", "topic", "number"}
HEADER_TEXTS = {*TEXT_KEYS, *NAMES["query"], "title", "body", "topic"}
FIRST_ID = re.compile(rb'\s*\{\s*"(_id|id)"\s*:\s*"([^"\\]*)"')
"""A line whose first key is the id, as nearly all are; others are parsed."""
Keep: TypeAlias = Callable[[bytes], bool]
"""Tells of a line whether it shall be parsed."""


def some_names(*fields: str) -> dict[str, tuple[str, ...]]:
    """The names of some fields."""
    return {field: NAMES[field] for field in fields}


def found_columns(
    there: Sequence[str], fields: Mapping[str, Sequence[str]], columns: Mapping[str, str] | None, name: str
) -> dict[str, str]:
    """The columns of those fields that have one."""
    if twice := _repeated(there):
        raise UserError(f"{name}: has two columns {twice!r}; rename one")
    columns = {} if columns is None else columns
    if not isinstance(columns, Mapping):
        raise UserError(f"{name}: columns: expected field and column, as in {{'text': 'passage'}}, not {columns!r}")
    for field, column in columns.items():
        if field not in fields:
            raise UserError(f"{name}: columns: no field {field!r}{nearest(str(field), fields)}; {', '.join(fields)}")
        if str(column) not in there:
            raise UserError(f"{name}: has no column {column!r}{nearest(str(column), there)}; it has {', '.join(there)}")
    if twice := _repeated(map(str, columns.values())):
        raise UserError(f"{name}: columns: names {twice!r} for two fields; each has a column of its own")
    told = {field: str(column) for field, column in columns.items()}
    usual = {field: next((one for one in names if one in there), None) for field, names in fields.items()}
    left = {field: column for field, column in usual.items() if column and column not in told.values()}
    found = left | told
    return {field: found[field] for field in fields if field in found}


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]


def named_columns(
    frame: pd.DataFrame,
    fields: Mapping[str, Sequence[str]],
    columns: Mapping[str, str] | None,
    name: str,
    optional: Sequence[str] = (),
) -> dict[str, list[Any]]:
    """What a frame holds of each field, by field; see `found_columns`."""
    there = [str(column) for column in frame.columns]
    found = found_columns(there, fields, columns, name)
    if lacking := next((field for field in fields if field not in found and field not in optional), None):
        raise UserError(
            f"{name}: has no column {fields[lacking][0]}; there are {', '.join(there)}; "
            f"name it with columns={{{lacking!r}: …}}"
        )
    return {field: frame.iloc[:, there.index(column)].tolist() for field, column in found.items()}


def is_json(path: Path) -> bool:
    """Whether a file's name says JSON lines, compressed or not."""
    return ".jsonl" in path.suffixes[-2:]


def read_json_objects(
    path: Path, right: str, keep: Keep | None = None, strict: bool = False
) -> Iterator[tuple[int, dict[str, object]]]:
    """Each line's number and object; ``right`` shows in errors what a line should be like."""
    for number, line in read_lines(path, keep, strict):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}:{number}: not JSON ({error}); expected a line like {right}") from error
        if not isinstance(record, dict):
            raise UserError(f"{path}:{number}: not a JSON object; expected a line like {right}")
        yield number, record


def read_json(path: Path, right: str) -> Any:
    """What a JSON file holds; ``right`` shows in errors what it should be like."""
    with open_binary(path) as file, can_be_decompressed(path):
        text = file.read().decode("utf-8-sig", errors="replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error}); is it cut short? expected {right}") from error


def json_objects(values: Iterable[object], what: str, right: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object of a JSON list and its place, from ``what`` and its number."""
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise UserError(f"{what} {number}: not a JSON object but {type(value).__name__}; expected one like {right}")
        yield f"{what} {number}", value


def read_json_lines(path: Path, keep: Keep | None = None) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Each line's place, id and object."""
    for number, record in read_json_objects(path, '{"_id": "7", "text": "…"}', keep):
        where = f"{path}:{number}"
        key = next((key for key in ID_KEYS if key in record), None)
        if key is None:
            raise UserError(f"{where}: no id among the keys {', '.join(record) or '(none)'}; expected one named '_id'")
        yield where, checked_id(record[key], where), record


def read_csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Each row of a CSV or TSV file and the line where it begins, the header first; texts may hold line ends."""
    csv.field_size_limit(LONGEST_LINE)
    lines = (decoded(raw, path, number) for number, raw in raw_lines(path))
    reader = csv.reader(lines, delimiter="\t" if ".tsv" in path.suffixes[-2:] else ",", strict=True)
    width = begins = 0
    try:
        for cells in reader:
            begins, place = reader.line_num, begins + 1
            if not cells:
                continue
            width = width or len(cells)
            if len(cells) != width:
                raise UserError(f"{path}:{place}: {len(cells)} columns; expected {width}, as the first line has")
            yield place, cells
    except csv.Error as error:
        raise UserError(f"{path}:{begins + 1}: not CSV ({error}); is a quote open?") from error


def read_tab_lines(path: Path, keep: Keep | None = None) -> Iterator[tuple[str, str, str]]:
    """Each line's place, id and text."""
    for number, line in read_lines(path, keep):
        where = f"{path}:{number}"
        columns = line.split("\t")
        if len(columns) != 2:
            raise UserError(f"{where}: {len(columns)} columns; expected two, an id and a text (for more, use JSONL)")
        if number == 1 and columns[0].strip().lower() in HEADER_IDS and columns[1].strip().lower() in HEADER_TEXTS:
            raise UserError(f"{where}: {line!r} is a header, not an id and a text; take the line out")
        yield where, checked_id(columns[0], where), joined(columns[1:])


class ChosenFields:
    """The fields that shall make a document's text, and whether any document has them."""

    def __init__(self, fields: Sequence[str] | None):
        self.fields = fields
        self._unseen = dict.fromkeys(fields or ())
        self._known: dict[str, None] = {}

    def note(self, keys: Iterable[str]) -> None:
        if self._unseen:
            self._known.update(dict.fromkeys(keys))
            self._unseen = {field: None for field in self._unseen if field not in self._known}

    def check(self, source: str) -> None:
        """Refuse a chosen field that no document had, when all have been seen."""
        for name in self._unseen:
            known = ", ".join(sorted(self._known)) or "none"
            raise UserError(f"{source}: no document has a field {name!r}{nearest(name, self._known)}; fields: {known}")


def field_text(value: object, where: str, field: str) -> str:
    """A field's value as text: a string, a number, or a list of these, one a line."""
    if isinstance(value, list):
        return joined(field_text(part, where, field) for part in value)
    if value is None or isinstance(value, str | int | float):
        return "" if value is None else str(value)
    raise UserError(f"{where}: {field!r} is no text but {type(value).__name__}; expected a string")


def json_text(record: Mapping[str, object], fields: Sequence[str] | None, where: str) -> str:
    """The text of a JSON document: its ``fields``, by default ``title``, where there is one, and ``text``."""
    if fields is None:
        body = next((key for key in TEXT_KEYS if key in record), None)
        if body is None:
            raise UserError(f"{where}: no text among the keys {', '.join(record)}; expected 'text', or choose fields")
        fields = ("title", body)
    return joined(field_text(record.get(key), where, key) for key in fields)


def json_documents(
    path: Path, fields: Sequence[str] | None, keep: Keep | None = None
) -> Iterator[tuple[str, Document]]:
    """Documents of a JSON-lines file and their places."""
    chosen = ChosenFields(fields)
    for where, id, record in read_json_lines(path, keep):
        chosen.note(record)
        yield where, Document(id, json_text(record, fields, where))
    chosen.check(str(path))


def tab_documents(path: Path, fields: Sequence[str] | None, keep: Keep | None = None) -> Iterator[tuple[str, Document]]:
    """Documents of a tab-separated file (id, text) and their places."""
    if fields is not None and list(fields) != ["text"]:
        raise UserError(f"{path}: a TSV has one field, 'text', not {', '.join(fields)}; for more, use JSONL")
    for where, id, text in read_tab_lines(path, keep):
        yield where, Document(id, text)


def keep_tab(ids: Container[str]) -> Keep:
    """For lines of a tab-separated file: those of these documents."""
    return lambda line: line.partition(b"\t")[0].decode(errors="replace") in ids


def keep_json(ids: Container[str]) -> Keep:
    """For JSON lines: those of these documents, and those of which only parsing tells the id."""

    def keep(line: bytes) -> bool:
        found = FIRST_ID.match(line)
        # A later key of the same or a better name would be the id instead.
        if found is None or line.find(b'"_id"', found.end()) >= 0 or line.find(b'"%s"' % found[1], found.end()) >= 0:
            return True
        return found[2].decode(errors="replace") in ids

    return keep
