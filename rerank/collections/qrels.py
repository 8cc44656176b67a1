"""Judgments from TREC qrels files and BEIR's TSV."""

from __future__ import annotations

from pathlib import Path

from rerank.collections.base import Qrels
from rerank.errors import UserError
from rerank.files import read_lines

QRELS_NAMES = ("qrels", "qrels.txt", "qrels.tsv", "qrels.trec")
BEIR_HEADER = ["query-id", "corpus-id", "score"]


def read_qrels_file(path: Path) -> Qrels:
    """Read a TREC qrels file (query, iteration, document, grade) or a BEIR TSV (known by its header).

    Grades are kept as given, negative ones too. A judgment may be repeated, but not with another grade.
    """
    qrels: Qrels = {}
    beir = False
    for number, line in read_lines(path):
        columns = line.split()
        if not qrels and columns == BEIR_HEADER:
            beir = True
            continue
        where = f"{path}:{number}"
        if len(columns) != (3 if beir else 4):
            right = "a query id, a document id and a grade" if beir else "a query id, 0, a document id and a grade"
            raise UserError(f"{where}: {len(columns)} columns; expected {right}")
        query, document = columns[0], columns[-2]
        try:
            grade = int(columns[-1])
        except ValueError:
            raise UserError(f"{where}: the grade {columns[-1]!r} is no whole number") from None
        grades = qrels.setdefault(query, {})
        if grades.setdefault(document, grade) != grade:
            other = f"has grade {grade} here and {grades[document]} before; keep one of them"
            raise UserError(f"{where}: document {document!r} of query {query!r} {other}")
    if not qrels:
        raise UserError(
            f"{path}: no judgments in this file; expected lines of a query id, 0, a document id and a grade"
        )
    return qrels
