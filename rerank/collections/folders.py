"""Collections that are a folder of files: the layout of BEIR, and plain TSV or JSONL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rerank.collections.base import Document, Qrels, Query, unique
from rerank.collections.parsing import count_lines, find_file, is_json, json_documents, read_queries, tab_documents
from rerank.collections.qrels import QRELS_NAMES, read_qrels_file
from rerank.errors import UserError, nearest
from rerank.files import digest


def existing_folder(path: str) -> Path:
    """A folder that is there."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    return folder


class FilesFolder:
    """``files:DIR``: ``docs.tsv`` or ``docs.jsonl``, ``queries.tsv`` or ``queries.jsonl``, and TREC ``qrels``, if any.

    Every file may be compressed (``.gz``, ``.xz``). A TSV line is an id, a tab and a text; a JSON line has an ``id``
    (or ``_id``), a ``text`` (or ``contents``) and whatever else ``fields`` may choose.
    """

    prefix = "files"
    document_names: tuple[str, ...] = ("docs.jsonl", "docs.tsv")

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        self.name = f"{self.prefix}:{path}"
        self.folder = existing_folder(path)
        self.fields = fields
        self._documents = self._required(self.document_names)
        self._qrels = find_file(self.folder, QRELS_NAMES)

    def _required(self, names: Sequence[str]) -> Path:
        path = find_file(self.folder, names)
        if path is None:
            raise UserError(f"{self.folder}: no {' or '.join(names)} (.gz, .xz or plain) in this folder")
        return path

    def documents(self) -> Iterator[Document]:
        """Stream the documents."""
        read = json_documents if is_json(self._documents) else tab_documents
        return unique(lambda: read(self._documents, self.fields))

    def queries(self) -> Iterator[Query]:
        """The queries in the order of their file."""
        return read_queries(self._required(("queries.jsonl", "queries.tsv")))

    def qrels(self) -> Qrels | None:
        """The judgments, if there is a file of them."""
        return read_qrels_file(self._qrels) if self._qrels else None

    def document_count(self) -> int | None:
        """How many lines the documents' file has, if it is not compressed."""
        return count_lines(self._documents)

    def fingerprint(self) -> str:
        """Digest of the documents' file and the chosen fields."""
        return digest("lines", "\0".join(self.fields or ()), self._documents)


class BeirFolder(FilesFolder):
    """``beir:DIR/SPLIT``: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv`` as BEIR lays them out.

    As in BEIR, the queries of a split are those that its judgments hold. ``beir:DIR`` has all queries and no
    judgments.
    """

    prefix = "beir"
    document_names = ("corpus.jsonl",)

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        folder, split = path, None
        if not Path(path).expanduser().is_dir():
            folder, split = str(Path(path).parent), Path(path).name
        super().__init__(folder, fields)
        self.name = f"{self.prefix}:{path}"
        self._qrels = None
        if split is not None:
            self._qrels = find_file(self.folder / "qrels", [f"{split}.tsv"])
            if self._qrels is None:
                splits = [file.name.split(".")[0] for file in sorted((self.folder / "qrels").glob("*.tsv*"))]
                hint = f"{nearest(split, splits)}; splits: {', '.join(splits) or 'none'}"
                raise UserError(f"{self.folder}: no qrels/{split}.tsv{hint}")

    def queries(self) -> Iterator[Query]:
        """The queries that the split's judgments hold, in the order of their file; all of them without a split."""
        queries = read_queries(self._required(("queries.jsonl",)))
        qrels = self.qrels()
        return queries if qrels is None else (query for query in queries if query.id in qrels)
