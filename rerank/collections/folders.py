"""Collections that are a folder of files: BEIR's layout, TSV or JSONL, TREC's tags, the SMART system's (CISI, MED)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from rerank.collections.base import Document, Qrels, Query, checked_id, joined, unique
from rerank.collections.queries import grade_of, read_qrels_file, read_queries_file, unique_queries
from rerank.collections.records import ChosenFields, is_json, json_documents, keep_json, keep_tab, tab_documents
from rerank.collections.tagged import tagged_documents
from rerank.errors import NotFoundError, UserError, nearest
from rerank.storage.files import COMPRESSED, digest, open_binary, read_lines, warn_once
from rerank.storage.hashes import sha256_of, sha256_of_files

QUERIES = r"(queries|topics)(\.[\w-]+)*"
QRELS = r"qrels(\.[\w-]+)*"

RECORD = re.compile(r"\.I\s+(\S+)\s*")
FIELD = re.compile(r"\.([A-Z])\s*")
TEXT = ("t", "w")
"""Title and text (an abstract, or the words of a query)."""


class Folder:
    """What such folders share: queries (``queries.*`` or ``topics.*``) and, if there are any, judgments (``qrels*``).

    Every file may be compressed (``.gz``, ``.xz``, ``.zst``, ``.bz2``).
    """

    prefix: str

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        self.name = f"{self.prefix}:{path}"
        self.folder = Path(path).expanduser()
        self.fields = fields
        if not self.folder.is_dir():
            raise NotFoundError(f"{self.folder}: no such folder")

    def find(self, pattern: str, expected: str, folder: Path | None = None) -> Path:
        """The one file of such a name in the folder; refused if there is none, or several."""
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

    def queries(self, fields: Sequence[str] | None = None) -> Iterator[Query]:
        return read_queries_file(self.find(QUERIES, "queries.tsv, queries.jsonl or topics.txt"), fields)

    def qrels(self) -> Qrels | None:
        return read_qrels_file(self.find(QRELS, "qrels")) if self._matching(QRELS) else None

    def document_count(self) -> int | None:
        return None


class FilesFolder(Folder):
    """``files:DIR``: ``docs.tsv`` or ``docs.jsonl``, queries, and judgments, if any.

    A TSV line is an id, a tab and a text. A JSON line has an ``id`` (or ``_id``), a ``text`` (or ``contents``), a
    ``title``, if any, and whatever else ``fields`` may choose.
    """

    prefix = "files"
    pattern = r"docs\.(tsv|jsonl)"
    expected = "docs.tsv or docs.jsonl"

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        super().__init__(path, fields)
        self.path = self.find(self.pattern, self.expected)

    def documents(self) -> Iterator[Document]:
        read = json_documents if is_json(self.path) else tab_documents
        return unique(lambda: read(self.path, self.fields))

    def cheaper_by_id(self, wanted: int) -> bool:
        """Looking up reads the file, too, but parses little of it: it does not see which fields all documents have."""
        return self.fields is None and 2 * wanted < (self.document_count() or 0)

    def documents_by_id(self, ids: Set[str]) -> Iterator[Document]:
        read, keep = (json_documents, keep_json(ids)) if is_json(self.path) else (tab_documents, keep_tab(ids))
        found = unique(lambda: read(self.path, self.fields, keep))
        return (document for document in found if document.id in ids)

    def document_count(self) -> int | None:
        if self.path.suffix in COMPRESSED:  # where counting costs as much as reading
            return None
        with open_binary(self.path) as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))

    def fingerprint(self) -> str:
        return digest("lines", "\0".join(self.fields or ()), sha256_of(self.path))


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


class TrecFolder(Folder):
    """``trec:DIR``: TREC-tagged documents (``<DOC>``, ``<DOCNO>``) in the files of a folder and the folders in it.

    Queries are TREC topics (``<top>``, ``<num>``, ``<title>``), TSV or JSONL. A document's text is all of it without
    markup, or the contents of the tags that ``fields`` chooses.
    """

    prefix = "trec"

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        super().__init__(path, [field.lower() for field in fields] if fields else None)
        other = {*self._matching(QUERIES), *self._matching(QRELS)}
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
        self.files = [path for path in files if path not in other]
        if not self.files:
            raise UserError(f"{self.folder}: no files of documents in this folder")
        for file in self.files:
            if re.search(r"\.(Z|\d[zZ])$", file.name):
                raise UserError(f"{file}: compressed by `compress`, which is not read; decompress it with gzip -d")

    def documents(self) -> Iterator[Document]:
        return unique(self._records)

    def _records(self) -> Iterator[tuple[str, Document]]:
        chosen = ChosenFields(self.fields)
        empty = True
        for file in self.files:
            where = None
            for where, document in tagged_documents(file, chosen):
                empty = False
                yield where, document
            if where is None:
                warn_once(f"{file}: skipped, because it has no <DOC>")
        if empty:
            raise UserError(f"{self.folder}: no <DOC> in any of the {len(self.files)} files")
        chosen.check(str(self.folder))

    def fingerprint(self) -> str:
        return digest("trec without programs", "\0".join(self.fields or ()), sha256_of_files(self.folder, self.files))


class SmartFolder(Folder):
    """``smart:DIR``: documents in ``NAME.ALL``, queries in ``NAME.QRY``, judgments in ``NAME.REL``, if any.

    A record starts with ``.I`` and its number; fields start with ``.T`` (title), ``.A`` (author), ``.W`` (text) and the
    like, each on a line of its own. A line of judgments starts with a query and a relevant document (CISI), or is
    as TREC has it, with a 0 in between (MED). Queries keep their numbers: in Cranfield's own files judgments count
    queries otherwise, so take ir_datasets' ``cranfield`` there.

    Args:
        fields: letters of the fields that make a document's text, in this order; by default ``t`` and ``w``.
    """

    prefix = "smart"

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        super().__init__(path, [field.lower() for field in fields] if fields else None)
        self.path = self.find(r"(?i:.+\.all)", "NAME.ALL, as the SMART system has it,")
        self.stem = self.path.name.split(".")[0]

    def documents(self) -> Iterator[Document]:
        return unique(self._documents)

    def _documents(self) -> Iterator[tuple[str, Document]]:
        chosen = ChosenFields(self.fields)
        for where, id, fields in records(self.path):
            chosen.note(fields)
            yield where, Document(id, joined(fields.get(field, "") for field in self.fields or TEXT))
        chosen.check(str(self.path))

    def queries(self, fields: Sequence[str] | None = None) -> Iterator[Query]:
        if fields is not None:
            raise UserError(f"{self.name}: queries have one text and no fields to choose from")
        path = self.find(self._named("qry"), f"{self.stem}.QRY")
        texts = ((where, id, joined(fields.get(field, "") for field in TEXT)) for where, id, fields in records(path))
        return unique_queries(((where, id, " ".join(text.split())) for where, id, text in texts), path)

    def qrels(self) -> Qrels | None:
        if not self._matching(self._named("rel")):
            return None
        path = self.find(self._named("rel"), f"{self.stem}.REL")
        qrels: Qrels = {}
        for number, line in read_lines(path):
            columns = line.split()
            if len(columns) != 4:
                raise UserError(f"{path}:{number}: {len(columns)} columns; expected a query, a document and two others")
            grades = qrels.setdefault(columns[0], {})
            if columns[1] != "0":
                grades[columns[1]] = 1
            else:
                grades[columns[2]] = grade_of(columns[3], f"{path}:{number}")
        return qrels

    def _named(self, ending: str) -> str:
        return rf"(?i:{re.escape(self.stem)}\.{ending})"

    def fingerprint(self) -> str:
        return digest("smart", "\0".join(self.fields or ()), sha256_of(self.path))


def records(path: Path) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Place, id and fields (by their letter, in lower case) of each record; a field that comes again is continued."""
    where, id, fields = "", "", dict[str, list[str]]()
    lines: list[str] | None = None
    for number, line in read_lines(path):
        if match := RECORD.fullmatch(line):
            if where:
                yield where, id, {name: joined(text) for name, text in fields.items()}
            where, fields, lines = f"{path}:{number}", {}, None
            id = checked_id(match[1], where)
        elif line.lstrip().startswith(".I"):
            raise UserError(f"{path}:{number}: expected .I and one number, alone on a line, not {line[:40]!r}")
        elif where and (match := FIELD.fullmatch(line)):
            lines = fields.setdefault(match[1].lower(), [])
        elif lines is not None:
            lines.append(line.strip())
        else:
            raise UserError(f"{path}:{number}: expected .I and a number, or a field such as .W, not {line[:40]!r}")
    if not where:
        raise UserError(f"{path}: no records in this file; expected lines such as .I 1 and .W")
    yield where, id, {name: joined(text) for name, text in fields.items()}
