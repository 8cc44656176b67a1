"""Collections that are a folder of files: BEIR's layout, or plain TSV or JSONL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rerank.collections.base import Document, Qrels, Query
from rerank.collections.judgments import read_qrels_file
from rerank.collections.lines import read_documents, read_queries_file
from rerank.errors import NotFoundError, UserError, nearest
from rerank.storage.files import COMPRESSED, digest, file_state, open_binary, warn_once


class FilesFolder:
    """``files:DIR``: ``docs.tsv`` or ``docs.jsonl``, queries, and judgments, if any.

    Queries are in ``queries.*`` or ``topics.*``, judgments in ``qrels*``; every file may be compressed. A TSV line is
    an id, a tab and a text. A JSON line has an ``id`` (or ``_id``), a ``text`` (or ``contents``), perhaps a ``title``,
    and other fields that ``fields`` may choose.
    """

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        self._open(f"files:{path}", path, fields, r"docs\.(tsv|jsonl)", "docs.tsv or docs.jsonl")

    def _open(self, name: str, folder: str, fields: Sequence[str] | None, pattern: str, expected: str) -> None:
        self.name, self.folder, self.fields = name, Path(folder).expanduser(), fields
        if not self.folder.is_dir():
            raise NotFoundError(f"{self.folder}: no such folder")
        self.path = _only_file(self.folder, pattern, expected)

    def documents(self) -> Iterator[Document]:
        return read_documents(self.path, self.fields)

    def queries(self, fields: Sequence[str] | None = None) -> Iterator[Query]:
        expected = "queries.tsv, queries.jsonl or topics.txt"
        return read_queries_file(_only_file(self.folder, r"(queries|topics)(\.[\w-]+)*", expected), fields)

    def qrels(self) -> Qrels | None:
        pattern = r"qrels(\.[\w-]+)*"
        return read_qrels_file(_only_file(self.folder, pattern, "qrels")) if _files(self.folder, pattern) else None

    def document_count(self) -> int | None:
        if self.path.suffix in COMPRESSED:  # counting costs as much as reading
            return None
        with open_binary(self.path) as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))

    def fingerprint(self) -> str:
        return digest("lines", "\0".join(self.fields or ()), file_state(self.path))


class BeirFolder(FilesFolder):
    """``beir:DIR/SPLIT``: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv`` as BEIR lays them out.

    As in BEIR, the queries of a split are those that its judgments hold. ``beir:DIR`` has all queries and no
    judgments.
    """

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        whole = Path(path).expanduser().is_dir()
        self._open(f"beir:{path}", path if whole else str(Path(path).parent), fields, r"corpus\.jsonl", "corpus.jsonl")
        self.split = None
        files = _files(self.folder / "qrels", r".+\.tsv")
        self.splits = list(dict.fromkeys(file.name.rpartition(".tsv")[0] for file in files))
        if not whole:
            split = Path(path).name
            hint = f"qrels/{split}.tsv{nearest(split, self.splits)}; splits: {', '.join(self.splits) or 'none'}"
            self.split = _only_file(self.folder / "qrels", rf"{re.escape(split)}\.tsv", hint)

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
    """Return the files of such a name in a folder, compressed or not."""
    name = re.compile(rf"({pattern})({'|'.join(map(re.escape, COMPRESSED))})?")
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if path.is_file() and name.fullmatch(path.name)]


def _only_file(folder: Path, pattern: str, expected: str) -> Path:
    found = _files(folder, pattern)
    if not found:
        raise UserError(f"{folder}: no {expected} in this folder (plain or compressed)")
    if len(found) > 1:
        raise UserError(f"{folder}: both {found[0].name} and {found[1].name}; keep the one that is meant")
    return found[0]
