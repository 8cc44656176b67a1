"""Judgments: from TREC's and BEIR's files, tables, dictionaries and other libraries' objects."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rerank.collections.base import Qrels, checked_id
from rerank.collections.tables import NAMES, is_table, named_columns
from rerank.errors import UserError
from rerank.progress import log
from rerank.storage.files import read_lines

WHOLE = re.compile(r"([+-]?[0-9]{1,18})(\.0*)?")
HIGHEST = 2**15 - 1
BEIR_HEADER = ["query-id", "corpus-id", "score"]
FIELDS = {field: NAMES[field] for field in ("query_id", "doc_id")} | {"grade": (*NAMES["grade"], *NAMES["score"])}
"""The usual columns of judgments; BEIR calls grades ``score``."""

SHARE = 10
"""One of this many judged or ranked ids has to be of the collection."""


def grade_of(value: Any, where: str) -> int:
    """Convert a grade to a whole number of 16 bits (``1.0`` is 1, ``1_0`` is none).

    >>> grade_of("-1", "qrels:7"), grade_of("2.0", "qrels:8")
    (-1, 2)
    """
    text = WHOLE.fullmatch(value) if isinstance(value, str) else None
    number = int(text[1]) if text else value
    try:
        right = not isinstance(number, str) and bool(int(number) == number) and abs(int(number)) <= HIGHEST
    except (TypeError, ValueError, OverflowError):
        right = False
    if not right:
        raise UserError(f"{where}: grade {value!r:.60}; expected a whole number up to {HIGHEST}")
    return int(number)


def read_qrels_file(path: Path) -> Qrels:
    """Read TREC qrels (query, iteration, document, grade), a BEIR TSV (known by its header), or a table.

    Grades are kept as given, negative ones too. A judgment may be repeated, but not with another grade. Lines that
    start with ``#`` are comments, as in trec_eval 10.
    """
    qrels = qrels_of(path, None, str(path)) if is_table(path) else _collect(_rows(path))
    if not qrels:
        raise UserError(f"{path}: no judgments in this file; expected lines of query id, 0, document id and grade")
    return qrels


def _rows(path: Path) -> Iterator[tuple[str, str, str, str]]:
    width = 0
    for number, line in read_lines(path):
        columns = line.split()
        if columns[0].startswith("#"):
            continue
        if not width and columns == BEIR_HEADER:
            width = 3
            continue
        width = width or 4
        if len(columns) != width:
            right = f"a query id, {'' if width == 3 else '0, '}a document id and a grade"
            headed = f", or BEIR's header, {' '.join(BEIR_HEADER)}" if len(columns) == 3 else ""
            raise UserError(f"{path}:{number}: {len(columns)} columns; expected {right}{headed}")
        yield f"{path}:{number}", columns[0], columns[-2], columns[-1]


def qrels_of(given: Any, columns: Mapping[str, str] | None, name: str) -> Qrels:
    """Convert dictionaries, tables and other libraries' objects to judgments."""
    if type(given).__module__.startswith("ranx"):
        given = given.to_dict()
    if isinstance(given, Mapping):
        if odd := next((query for query, judged in given.items() if not isinstance(judged, Mapping)), None):
            kind = type(given[odd]).__name__
            expected = "expected a dictionary from document ids to grades"
            raise UserError(f"{name}: query {odd!r}: {expected}, not a {kind} (judgments are given before runs)")
        qrels = _collect(
            (f"{name}: query {query!r}, document {document!r}", query, document, grade)
            for query, judged in given.items()
            for document, grade in judged.items()
        )
        return {checked_id(query, name): {} for query in given} | qrels
    rows = zip(*named_columns(given, FIELDS, columns, name).values(), strict=True)
    return _collect((f"{name}: judgment {number}", *row) for number, row in enumerate(rows, 1))


def _collect(rows: Iterable[tuple[str, Any, Any, Any]]) -> Qrels:
    """Check rows of place, query id, document id and grade."""
    qrels: Qrels = {}
    for where, query, document, value in rows:
        judged = qrels.setdefault(checked_id(query, where), {})
        document, grade = checked_id(document, where), grade_of(value, where)
        if judged.setdefault(document, grade) != grade:
            both = f"grade {grade} here and {judged[document]} before"
            raise UserError(f"{where}: document {document!r} of query {query!r} has {both}; keep one")
    return qrels


UNSEEN = "they count as not retrieved"
"""Judged documents without a text still count in recall, AP and the ideal order."""


def check_known(
    name: str, what: str, ids: Collection[str], unknown: Collection[str], least: int, fate: str = "left out"
) -> None:
    """Warn of ids that a collection lacks; refuse those of another collection.

    Args:
        name: its name in messages.
        what: what the ids are, such as ``judged queries``.
        ids: the ids.
        unknown: those among them that the collection lacks.
        least: a tenth of this many have to be known: of all ids, or of the collection's, if it may be a small part.
        fate: what becomes of the unknown ones.

    Raises:
        UserError: none is known, or too few.
    """
    if not unknown:
        return
    known, example = len(ids) - len(unknown), min(unknown)
    if not known or SHARE * known < least:
        found = f"has only {known} of the {len(ids)} {what}, and not {example!r}"
        raise UserError(f"{name}: {found}; are they of another collection?")
    log.warning("%s: lacks %d of the %d %s, such as %r; %s", name, len(unknown), len(ids), what, example, fate)
