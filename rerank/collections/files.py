"""Collections that are folders of files, plain or in BEIR's layout, and files of documents and of queries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rerank.collections.base import Document, Qrels, Query, checked_id, joined
from rerank.collections.judgments import read_qrels_file
from rerank.collections.tables import NAMES, json_object
from rerank.errors import NotFoundError, UserError, nearest
from rerank.storage.files import COMPRESSED, digest, file_state, read_lines, warn_once

DOCUMENT_KEYS = ("_id", "id", *NAMES["doc_id"])
QUERY_KEYS = ("_id", "id", *NAMES["query_id"])
HEADER_WORDS = {*DOCUMENT_KEYS, *QUERY_KEYS, *NAMES["text"], *NAMES["query"], "doc-id", "number", "title", "body"}


class FilesFolder:
    """``files:DIR``, or ``beir:DIR/SPLIT`` with the judgments of a split: files of documents, queries and judgments.

    Documents are in ``docs.tsv``, ``docs.jsonl`` or ``corpus.jsonl``, queries in ``queries.*``, judgments in ``qrels*``
    or, of a split, in ``qrels/SPLIT.tsv``; every file may be compressed. A TSV line is an id, a tab and a text. A JSON
    line has an ``id`` (or ``_id``), a ``text`` (or ``contents``), perhaps a ``title``.

    As in BEIR, the queries of a split are those that its judgments hold. ``beir:DIR`` has all queries.
    """

    def __init__(self, name: str) -> None:
        given = Path(name.partition(":")[2]).expanduser()
        is_split = not given.is_dir() and (given.parent / "qrels").is_dir()
        self.name, self.folder = name, given.parent if is_split else given
        self.path = _only_file(self.folder, r"docs\.(tsv|jsonl)|corpus\.jsonl", "docs.tsv, docs.jsonl or corpus.jsonl")
        files = _files(self.folder / "qrels", r".+\.tsv")
        self.splits = list(dict.fromkeys(file.name.rpartition(".tsv")[0] for file in files))
        self.split = None
        if is_split:
            hint = f"qrels/{given.name}.tsv{nearest(given.name, self.splits)}; splits: {', '.join(self.splits)}"
            self.split = _only_file(self.folder / "qrels", rf"{re.escape(given.name)}\.tsv", hint)

    def documents(self) -> Iterator[Document]:
        return (Document(id, document_text(record, where)) for where, id, record in _records(self.path, DOCUMENT_KEYS))

    def queries(self) -> Iterator[Query]:
        file = _only_file(self.folder, r"queries(\.[\w-]+)*", "queries.tsv or queries.jsonl")
        if self.split is None:
            return read_queries_file(file)
        qrels = self.qrels() or {}
        judged = [query for query in read_queries_file(file) if query.id in qrels]
        if not judged:
            raise UserError(f"{self.split}: judges none of the queries; expected query-id, corpus-id, score")
        return iter(judged)

    def qrels(self) -> Qrels | None:
        if self.split is not None:
            return read_qrels_file(self.split)
        if _files(self.folder, pattern := r"qrels(\.[\w-]+)*"):
            return read_qrels_file(_only_file(self.folder, pattern, "qrels"))
        if self.splits:
            such = f"{self.name.rstrip('/')}/{self.splits[0]}"
            warn_once(f"{self.name}: has no judgments without a split, such as {such}")
        return None

    def fingerprint(self) -> str:
        return digest("lines", file_state(self.path))


def _files(folder: Path, pattern: str) -> list[Path]:
    """List the files of such a name in a folder, compressed or not."""
    name = re.compile(rf"({pattern})({'|'.join(map(re.escape, COMPRESSED))})?")
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if path.is_file() and name.fullmatch(path.name)]


def _only_file(folder: Path, pattern: str, expected: str) -> Path:
    if not folder.is_dir():
        raise NotFoundError(f"{folder}: no such folder")
    found = _files(folder, pattern)
    if not found:
        raise UserError(f"{folder}: no {expected} in this folder (plain or compressed)")
    if len(found) > 1:
        raise UserError(f"{folder}: both {found[0].name} and {found[1].name}; keep the one that is meant")
    return found[0]


def read_queries_file(path: Path) -> Iterator[Query]:
    """Yield the queries of a file in its order.

    A file named ``.jsonl`` has an ``_id`` (or ``id``) and a ``text`` (or ``query``) a line; any other has an id, a tab
    and a text a line.
    """
    first: dict[str, str] = {}
    for where, id, record in _records(path, QUERY_KEYS):
        if id in first:
            raise UserError(f"{where}: query id {id!r} again, first at {first[id]}; ids are unique")
        first[id] = where
        yield Query(id, _text(record, where, ("text", *NAMES["query"])))
    if not first:
        raise UserError(f"{path}: no queries in this file; expected ids, tabs and texts, or JSON lines")


def _records(path: Path, ids: Sequence[str]) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Yield the place, id and fields of each line: JSON if the file is named ``.jsonl``, else an id, a tab and a text.

    ``ids`` are the keys of a JSON line that may hold its id, most usual first.

    Raises:
        UserError: a line of another form, or without an id; it is named.
    """
    is_json = ".jsonl" in path.suffixes[-2:]
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        record = json_object(line, where, '{"_id": "7", "text": "…"}') if is_json else _tab_record(line, where)
        key = next((key for key in ids if key in record), None)
        if key is None:
            raise UserError(f"{where}: no id among the keys {', '.join(record) or '(none)'}; expected one named '_id'")
        yield where, checked_id(record[key], where), record


def _tab_record(line: str, where: str) -> dict[str, object]:
    columns = line.split("\t")
    if len(columns) != 2:
        raise UserError(f"{where}: {len(columns)} columns; expected two, an id and a text (for more, use JSONL)")
    if where.endswith(":1") and HEADER_WORDS.issuperset(column.strip().lower() for column in columns):
        raise UserError(f"{where}: {line!r} is a header, not an id and a text; take the line out")
    return {"_id": columns[0], "text": columns[1]}


def document_text(record: Mapping[str, object], where: str) -> str:
    """Join the title of a document, if it has one, and its text."""
    text = _text(record, where, NAMES["text"])
    return joined([_field_text(record.get("title"), where, "title"), text])


def _text(record: Mapping[str, object], where: str, keys: Sequence[str]) -> str:
    key = next((key for key in keys if key in record), None)
    if key is None:
        raise UserError(f"{where}: no text among the keys {', '.join(record)}; expected {keys[0]!r}")
    return joined([_field_text(record[key], where, key)])


def _field_text(value: object, where: str, field: str) -> str:
    if isinstance(value, list):
        return joined(_field_text(part, where, field) for part in value)
    if value is None or isinstance(value, str | int | float):
        return "" if value is None or value != value else str(value)
    raise UserError(f"{where}: {field!r} is {type(value).__name__}; expected a string")
