"""Collections that are a folder of files: BEIR's layout, or plain TSV or JSONL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rerank.collections.base import Document, Qrels, Query
from rerank.collections.judgments import read_qrels_file
from rerank.collections.lines import is_json, json_documents, tab_documents
from rerank.collections.queries import read_queries_file
from rerank.errors import NotFoundError, UserError, nearest
from rerank.storage.files import COMPRESSED, digest, file_state, open_binary, warn_once

QUERIES = r"(queries|topics)(\.[\w-]+)*"
QRELS = r"qrels(\.[\w-]+)*"


class FilesFolder:
    """``files:DIR``: ``docs.tsv`` or ``docs.jsonl``, queries, and judgments, if any.

    Queries are in ``queries.*`` or ``topics.*``, judgments in ``qrels*``; every file may be compressed. A TSV line is
    an id, a tab and a text. A JSON line has an ``id`` (or ``_id``), a ``text`` (or ``contents``), perhaps a ``title``,
    and other fields that ``fields`` may choose.
    """

    prefix = "files"
    pattern = r"docs\.(tsv|jsonl)"
    expected = "docs.tsv or docs.jsonl"

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        self.name = f"{self.prefix}:{path}"
        self.folder = Path(path).expanduser()
        self.fields = fields
        if not self.folder.is_dir():
            raise NotFoundError(f"{self.folder}: no such folder")
        self.path = self.find(self.pattern, self.expected)

    def find(self, pattern: str, expected: str, folder: Path | None = None) -> Path:
        """Find the one file of such a name in the folder."""
        found = self._matching(pattern, folder)
        if not found:
            raise UserError(f"{self.folder}: no {expected} in this folder (plain or compressed)")
        if len(found) > 1:
            raise UserError(f"{self.folder}: both {found[0].name} and {found[1].name}; keep the one that is meant")
        return found[0]

    def _matching(self, pattern: str, folder: Path | None = None) -> list[Path]:
        name = re.compile(rf"({pattern})({'|'.join(map(re.escape, COMPRESSED))})?")
        paths = sorted((folder or self.folder).iterdir())
        return [path for path in paths if path.is_file() and name.fullmatch(path.name)]

    def documents(self) -> Iterator[Document]:
        read = json_documents if is_json(self.path) else tab_documents
        return read(self.path, self.fields)

    def queries(self, fields: Sequence[str] | None = None) -> Iterator[Query]:
        return read_queries_file(self.find(QUERIES, "queries.tsv, queries.jsonl or topics.txt"), fields)

    def qrels(self) -> Qrels | None:
        return read_qrels_file(self.find(QRELS, "qrels")) if self._matching(QRELS) else None

    def document_count(self) -> int | None:
        if self.path.suffix in COMPRESSED:  # counting costs as much as reading
            return None
        with open_binary(self.path) as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))

    def fingerprint(self) -> str:
        return digest("lines", "\0".join(self.fields or ()), file_state([self.path]))


class BeirFolder(FilesFolder):
    """``beir:DIR/SPLIT``: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv`` as BEIR lays them out.

    As in BEIR, the queries of a split are those that its judgments hold. ``beir:DIR`` has all queries and no
    judgments.
    """

    prefix = "beir"
    pattern = r"corpus\.jsonl"
    expected = "corpus.jsonl"

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        whole = Path(path).expanduser().is_dir()
        super().__init__(path if whole else str(Path(path).parent), fields)
        self.name = f"{self.prefix}:{path}"
        self.split = None
        if not whole:
            qrels, split = self.folder / "qrels", Path(path).name
            if not qrels.is_dir():
                raise UserError(f"beir:{path}: neither a folder nor DIR/SPLIT of a folder with qrels/SPLIT.tsv")
            splits = self._splits()
            hint = f"qrels/{split}.tsv{nearest(split, splits)}; splits: {', '.join(splits) or 'none'}"
            self.split = self.find(rf"{re.escape(split)}\.tsv", hint, qrels)

    def _splits(self) -> list[str]:
        there = self._matching(r".+\.tsv", self.folder / "qrels")  # not test.tsv.bak, nor test.tsv~
        return [*dict.fromkeys(file.name.rpartition(".tsv")[0] for file in there)]

    def queries(self, fields: Sequence[str] | None = None) -> Iterator[Query]:
        qrels, empty = self.qrels(), True
        for query in super().queries(fields):
            if qrels is None or query.id in qrels:
                empty = False
                yield query
        if empty:
            raise UserError(f"{self.split}: judges none of the queries; expected query-id, corpus-id, score")

    def qrels(self) -> Qrels | None:
        if self.split:
            return read_qrels_file(self.split)
        if (self.folder / "qrels").is_dir() and (splits := self._splits()):
            warn_once(f"{self.name}: has no judgments without a split, such as {self.name.rstrip('/')}/{splits[0]}")
        return None
