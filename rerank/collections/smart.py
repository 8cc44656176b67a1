"""Folders in the form of the SMART system, in which CISI, MED and other classic collections are handed on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rerank.collections.base import Document, Qrels, Query, checked_id, joined, unique
from rerank.collections.folders import Folder
from rerank.collections.qrels import grade_of
from rerank.collections.queries import unique_queries
from rerank.collections.records import ChosenFields
from rerank.errors import UserError
from rerank.storage.files import digest, read_lines
from rerank.storage.hashes import sha256_of

NUMBER = re.compile(r"\.I\s+(\S+)\s*")
FIELD = re.compile(r"\.([A-Z])\s*")
TEXT = ("t", "w")
"""Title and text (an abstract, or the words of a query)."""


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
        if match := NUMBER.fullmatch(line):
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
