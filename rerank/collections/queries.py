"""Queries from JSON lines, TSV or TREC topics; judgments from TREC qrels files and BEIR's TSV."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rerank.collections.base import Qrels, Query, joined
from rerank.collections.records import field_text, is_json, read_json_lines, read_tab_lines
from rerank.collections.tagged import topics
from rerank.errors import UserError
from rerank.storage.files import read_lines

WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
HIGHEST = 2**15 - 1
BEIR_HEADER = ["query-id", "corpus-id", "score"]


def read_queries_file(path: Path, fields: Sequence[str] | None = None) -> Iterator[Query]:
    """Stream the queries of a file in its order; an id that comes twice is refused.

    A file named ``.jsonl`` has an ``_id`` (or ``id``) and a ``text`` (or ``query``) a line; one that begins with ``<``
    has TREC topics, of which number and title are taken; any other has an id, a tab and a text a line. ``fields`` are
    the keys or tags that make the text in their place.
    """
    if is_json(path):
        records = _json_queries(path, fields)
    elif next(read_lines(path), (0, ""))[1].lstrip().startswith("<"):
        records = topics(path, fields)
    elif fields is not None:
        raise UserError(f"{path}: queries have one text and no fields to choose from; topics and JSON lines have")
    else:
        records = read_tab_lines(path)
    return unique_queries(records, path)


def unique_queries(records: Iterable[tuple[str, str, str]], path: Path) -> Iterator[Query]:
    """Queries from the place, id and text of each; an id that comes twice is refused, and a file without any."""
    first: dict[str, str] = {}
    for where, id, text in records:
        if id in first:
            raise UserError(f"{where}: query id {id!r} again, first at {first[id]}; ids are unique")
        first[id] = where
        yield Query(id, text)
    if not first:  # topics in other tags are no topics
        raise UserError(
            f"{path}: no queries in this file; expected lines of an id, a tab and a text, JSON lines, or TREC topics "
            "(<top> with <num> and <title>)"
        )


def _json_queries(path: Path, fields: Sequence[str] | None) -> Iterator[tuple[str, str, str]]:
    for where, id, record in read_json_lines(path):
        chosen = fields or [next((key for key in ("text", "query") if key in record), "text")]
        for key in chosen:
            if key not in record:
                raise UserError(f"{where}: no {key} among the keys {', '.join(record)}; expected {key!r}")
        yield where, id, joined(field_text(record[key], where, key) for key in chosen)


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
