"""Collections that are folders of files, in BEIR's layout or plain, and files of documents and of queries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rerank.collections.base import Document, Qrels, Query, checked_id, joined
from rerank.collections.judgments import read_qrels_file
from rerank.collections.tables import json_object
from rerank.collections.tagged import topics
from rerank.errors import NotFoundError, UserError, nearest
from rerank.storage.files import COMPRESSED, digest, file_state, read_lines, warn_once

ID_KEYS = ("_id", "id", "doc_id", "docid", "docno", "corpus-id", "pid", "query_id", "qid", "query-id", "q_id")
TEXT_KEYS = ("text", "contents", "content", "passage", "document", "answer", "segment")
HEADER_WORDS = {*ID_KEYS, *TEXT_KEYS, "doc-id", "topic", "number", "query", "question", "title", "body"}


class FilesFolder:
    """``files:DIR``: ``docs.tsv`` or ``docs.jsonl``, queries, and judgments, if any.

    Queries are in ``queries.*`` or ``topics.*``, judgments in ``qrels*``; every file may be compressed. A TSV line is
    an id, a tab and a text. A JSON line has an ``id`` (or ``_id``), a ``text`` (or ``contents``), perhaps a ``title``.
    """

    def __init__(self, path: str) -> None:
        self.name, self.folder = f"files:{path}", Path(path).expanduser()
        self.path = _only_file(self.folder, r"docs\.(tsv|jsonl)", "docs.tsv or docs.jsonl")

    def documents(self) -> Iterator[Document]:
        return (Document(id, document_text(record, where)) for where, id, record in _records(self.path))

    def queries(self, fields: Sequence[str] | None = None) -> Iterator[Query]:
        expected = "queries.tsv, queries.jsonl or topics.txt"
        return read_queries_file(_only_file(self.folder, r"(queries|topics)(\.[\w-]+)*", expected), fields)

    def qrels(self) -> Qrels | None:
        pattern = r"qrels(\.[\w-]+)*"
        return read_qrels_file(_only_file(self.folder, pattern, "qrels")) if _files(self.folder, pattern) else None

    def fingerprint(self) -> str:
        return digest("lines", file_state(self.path))


class BeirFolder(FilesFolder):
    """``beir:DIR/SPLIT``: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv`` as BEIR lays them out.

    As in BEIR, the queries of a split are those that its judgments hold. ``beir:DIR`` has all queries and no
    judgments.
    """

    def __init__(self, path: str) -> None:
        given = Path(path).expanduser()
        self.name, self.folder = f"beir:{path}", given if given.is_dir() else given.parent
        self.path = _only_file(self.folder, r"corpus\.jsonl", "corpus.jsonl")
        files = _files(self.folder / "qrels", r".+\.tsv")
        self.splits = list(dict.fromkeys(file.name.rpartition(".tsv")[0] for file in files))
        self.split = None
        if self.folder != given:
            hint = f"qrels/{given.name}.tsv{nearest(given.name, self.splits)}; splits: {', '.join(self.splits)}"
            self.split = _only_file(self.folder / "qrels", rf"{re.escape(given.name)}\.tsv", hint)

    def queries(self, fields: Sequence[str] | None = None) -> Iterator[Query]:
        qrels, empty = self.qrels(), True
        for query in super().queries(fields):
            if qrels is None or query.id in qrels:
                empty = False
                yield query
        if empty:
            raise UserError(f"{self.split}: judges none of the queries; expected query-id, corpus-id, score")

    def qrels(self) -> Qrels | None:
        if self.split is None and self.splits:
            such = f"{self.name.rstrip('/')}/{self.splits[0]}"
            warn_once(f"{self.name}: has no judgments without a split, such as {such}")
        return None if self.split is None else read_qrels_file(self.split)


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


def read_queries_file(path: Path, fields: Sequence[str] | None = None) -> Iterator[Query]:
    """Yield the queries of a file in its order.

    A file named ``.jsonl`` has an ``_id`` (or ``id``) and a ``text`` (or ``query``) a line; one that begins with ``<``
    has TREC topics, of which number and title are taken; any other has an id, a tab and a text a line. ``fields`` are
    the keys or tags that make the text in their place.
    """
    if next(read_lines(path), (0, ""))[1].lstrip().startswith("<"):
        queries = topics(path, fields)
    else:
        queries = ((where, id, _query_text(record, fields, where)) for where, id, record in _records(path))
    first: dict[str, str] = {}
    for where, id, text in queries:
        if id in first:
            raise UserError(f"{where}: query id {id!r} again, first at {first[id]}; ids are unique")
        first[id] = where
        yield Query(id, text)
    if not first:  # topics in other tags are no topics
        raise UserError(f"{path}: no queries in this file; expected ids, tabs and texts, JSON lines, or TREC topics")


def _records(path: Path) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Yield the place, id and fields of each line: JSON if the file is named ``.jsonl``, else an id, a tab and a text.

    Raises:
        UserError: a line of another form, or without an id; it is named.
    """
    is_json = ".jsonl" in path.suffixes[-2:]
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        record = json_object(line, where, '{"_id": "7", "text": "…"}') if is_json else _tab_record(line, where)
        key = next((key for key in ID_KEYS if key in record), None)
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
    body = next((key for key in TEXT_KEYS if key in record), None)
    if body is None:
        raise UserError(f"{where}: no text among the keys {', '.join(record)}; expected 'text'")
    return joined(_field_text(record.get(key), where, key) for key in ("title", body))


def _query_text(record: Mapping[str, object], fields: Sequence[str] | None, where: str) -> str:
    fields = fields or [next((key for key in ("text", "query") if key in record), "text")]
    if lacking := next((key for key in fields if key not in record), None):
        raise UserError(f"{where}: no {lacking} among the keys {', '.join(record)}; expected {lacking!r}")
    return joined(_field_text(record[key], where, key) for key in fields)


def _field_text(value: object, where: str, field: str) -> str:
    if isinstance(value, list):
        return joined(_field_text(part, where, field) for part in value)
    if value is None or isinstance(value, str | int | float):
        return "" if value is None else str(value)
    raise UserError(f"{where}: {field!r} is {type(value).__name__}; expected a string")
