"""Judgments: from TREC's and BEIR's files, tables, dictionaries and other libraries' objects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rerank.collections.base import Qrels, checked_id, checked_ids
from rerank.collections.records import NAMES, is_table, named_columns
from rerank.errors import UserError
from rerank.storage.files import read_lines

WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
HIGHEST = 2**15 - 1
BEIR_HEADER = ["query-id", "corpus-id", "score"]
FIELDS = {field: NAMES[field] for field in ("query_id", "doc_id")} | {"grade": (*NAMES["grade"], *NAMES["score"])}
"""The usual columns of judgments; BEIR calls grades ``score``."""


def grade_of(text: str, where: str) -> int:
    """Parse a grade: a whole number of 16 bits (``1_0`` is 10 to Python, but no grade).

    >>> grade_of("-1", "qrels:7")
    -1
    """
    if not WHOLE.fullmatch(text):
        raise UserError(f"{where}: the grade {text!r} is no whole number")
    if not -HIGHEST <= (grade := int(text)) <= HIGHEST:
        raise UserError(f"{where}: the grade {text} is beyond {HIGHEST}, the highest that there is room for")
    return grade


def read_qrels_file(path: Path) -> Qrels:
    """Read TREC qrels (query, iteration, document, grade), a BEIR TSV (known by its header), or a table.

    Grades are kept as given, negative ones too. A judgment may be repeated, but not with another grade. Lines that
    start with ``#`` are comments, as in trec_eval 10.
    """
    if is_table(path):
        return qrels_of(path, None, str(path))
    qrels: Qrels = {}
    beir = False
    for number, line in read_lines(path):
        columns = line.split()
        if columns[0].startswith("#"):
            continue
        if not qrels and columns == BEIR_HEADER:
            beir = True
            continue
        where = f"{path}:{number}"
        if len(columns) != (3 if beir else 4):
            right = "a query id, a document id and a grade" if beir else "a query id, 0, a document id and a grade"
            headed = "" if qrels or len(columns) != 3 else ", or BEIR's header, " + " ".join(BEIR_HEADER)
            raise UserError(f"{where}: {len(columns)} columns; expected {right}{headed}")
        query, document = columns[0], columns[-2]
        grade = grade_of(columns[-1], where)
        grades = qrels.setdefault(query, {})
        if grades.setdefault(document, grade) != grade:
            other = f"has grade {grade} here and {grades[document]} before; keep one of them"
            raise UserError(f"{where}: document {document!r} of query {query!r} {other}")
    if not qrels:
        raise UserError(f"{path}: no judgments in this file; expected lines of query id, 0, document id and grade")
    return qrels


def qrels_of(given: Any, columns: Mapping[str, str] | None, name: str) -> Qrels:
    """Convert dictionaries, tables and other libraries' objects to judgments."""
    if type(given).__module__.startswith("ranx"):
        given = given.to_dict()
    if isinstance(given, Mapping):
        for query, judged in given.items():
            if not isinstance(judged, Mapping):
                raise UserError(
                    f"{name}: query {query!r}: expected a dictionary from document ids to grades, not a "
                    f"{type(judged).__name__} (judgments are given before runs)"
                )
        qrels = _checked([(q, d, grade) for q, judged in given.items() for d, grade in judged.items()], name)
        for query in given:
            qrels.setdefault(checked_id(query, name), {})
        return qrels
    if isinstance(given, Path) or hasattr(given, "to_pandas") or hasattr(given, "itertuples"):
        return _checked(zip(*named_columns(given, FIELDS, columns, name).values(), strict=True), name)
    if isinstance(given, Iterable):
        try:
            return _checked([(one.query_id, one.doc_id, one.relevance) for one in given], name)
        except AttributeError as error:
            raise UserError(f"{name}: {error}; expected objects with query_id, doc_id and relevance") from error
    raise UserError(f"{name}: {type(given).__name__} holds no judgments; give a dictionary, a data frame or a file")


def _checked(rows: Iterable[tuple[Any, Any, Any]], name: str) -> Qrels:
    rows = list(rows)
    columns = ((row[i] for row in rows) for i in (0, 1))
    queries, documents = (checked_ids(ids, lambda number: f"{name}: judgment {number + 1}") for ids in columns)
    qrels: Qrels = {}
    for query, document, (_, _, grade) in zip(queries, documents, rows, strict=True):
        try:
            whole = int(grade)
            right = bool(whole == (grade_of(grade, "") if isinstance(grade, str) else grade)) and abs(whole) <= HIGHEST
        except (TypeError, ValueError, OverflowError):
            right = False
        if not right:
            pair = f"query {query!r}, document {document!r}"
            raise UserError(f"{name}: {pair}: grade {grade!r}; expected a whole number up to {HIGHEST}")
        judged = qrels.setdefault(query, {})
        if judged.setdefault(document, whole) != whole:
            raise UserError(f"{name}: query {query!r} has document {document!r} twice, with two grades")
    return qrels
