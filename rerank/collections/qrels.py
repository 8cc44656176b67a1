"""Judgments from TREC qrels files and BEIR's TSV."""

from __future__ import annotations

import re
from pathlib import Path

from rerank.collections.base import Qrels
from rerank.errors import UserError
from rerank.storage.files import read_lines

WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
HIGHEST = 2**15 - 1
BEIR_HEADER = ["query-id", "corpus-id", "score"]


def grade_of(text: str, where: str) -> int:
    """A grade as it is written; what is no whole number, or none of 16 bits, is refused (``1_0`` is 10 to Python).

    >>> grade_of("-1", "qrels:7")
    -1
    """
    if not WHOLE.fullmatch(text):
        raise UserError(f"{where}: the grade {text!r} is no whole number")
    if not -HIGHEST <= (grade := int(text)) <= HIGHEST:
        raise UserError(f"{where}: the grade {text} is beyond {HIGHEST}, the highest that there is room for")
    return grade


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
        grade = grade_of(columns[-1], where)
        grades = qrels.setdefault(query, {})
        if grades.setdefault(document, grade) != grade:
            other = f"has grade {grade} here and {grades[document]} before; keep one of them"
            raise UserError(f"{where}: document {document!r} of query {query!r} {other}")
    if not qrels:
        raise UserError(
            f"{path}: no judgments in this file; expected lines of a query id, 0, a document id and a grade"
        )
    return qrels
