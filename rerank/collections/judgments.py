"""Judgments in the forms that people have them: dictionaries, data frames, other libraries' objects, files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.collections.base import Qrels
from rerank.collections.names import read_qrels
from rerank.collections.qrels import HIGHEST
from rerank.errors import UserError, nearest

if TYPE_CHECKING:
    import pandas as pd

FIELDS: dict[str, tuple[str, ...]] = {
    "query_id": ("query_id", "qid", "query-id", "q_id"),
    "doc_id": ("doc_id", "docid", "docno", "corpus-id", "pid"),
    "grade": ("grade", "relevance", "rel", "label", "score"),
}
"""What the columns of judgments are called: by ir_datasets and ir-measures, Pyserini, PyTerrier, BEIR, ranx."""


def as_qrels(given: Any, columns: Mapping[str, str] | None = None, name: str = "qrels") -> Qrels:
    """Judgments as a dictionary, from whatever they are in.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"topic": [1, 1], "docno": ["a", "b"], "label": [2, 0]})
    >>> as_qrels(frame, {"query_id": "topic"})
    {'1': {'a': 2, 'b': 0}}

    Args:
        given: a dictionary of dictionaries; a data frame, or anything that has ``to_pandas`` (a Hugging Face data set,
            a Polars frame, an Arrow table); ir_measures' or ir_datasets' qrels, one by one; ranx's ``Qrels``; a file or
            the name of a collection.
        columns: what a frame calls ``query_id``, ``doc_id`` and ``grade``, where it is not one of the usual names.
        name: what messages call them.

    Raises:
        UserError: another form, a column that is not there, or a grade that is no whole number.
    """
    if isinstance(given, str | Path):
        return read_qrels(given)
    if isinstance(given, Mapping):
        rows = [(q, d, g) for q, judged in given.items() for d, g in _judged(q, judged, name).items()]
        return _checked(rows, name) | {str(q): {} for q, judged in given.items() if not judged}
    if type(given).__module__.startswith("ranx"):
        return as_qrels(given.to_dict(), name=name)
    if hasattr(given, "to_pandas"):
        given = given.to_pandas()
    if hasattr(given, "itertuples"):
        found = named_columns(given, FIELDS, columns, name)
        return _checked(zip(*(given[found[field]].tolist() for field in FIELDS), strict=True), name)
    if isinstance(given, Iterable):
        try:
            return _checked([(one.query_id, one.doc_id, one.relevance) for one in given], name)
        except AttributeError as error:
            raise UserError(f"{name}: {error}; expected objects with query_id, doc_id and relevance") from error
    raise UserError(f"{name}: {type(given).__name__} holds no judgments; give a dictionary, a data frame or a file")


def named_columns(
    frame: pd.DataFrame,
    fields: Mapping[str, Sequence[str]],
    columns: Mapping[str, str] | None = None,
    name: str = "data frame",
) -> dict[str, str]:
    """Which of a frame's columns holds each field; see `found_columns`.

    Raises:
        UserError: a field has no column, or ``columns`` names one that is not there.
    """
    there = [str(column) for column in frame.columns]
    found = found_columns(there, fields, columns, name)
    if lacking := next((field for field in fields if field not in found), None):
        raise UserError(
            f"{name}: has no column {fields[lacking][0]}; there are {', '.join(there)}; "
            f"say which it is with columns={{{lacking!r}: …}}"
        )
    return found


def found_columns(
    there: Sequence[str], fields: Mapping[str, Sequence[str]], columns: Mapping[str, str] | None, name: str
) -> dict[str, str]:
    """The columns of those fields that have one.

    Args:
        there: all columns.
        fields: the names that each field usually has.
        columns: the names that some have here.
        name: what messages call the frame.

    Raises:
        UserError: ``columns`` names a field or a column that is not there.
    """
    for field, column in (columns or {}).items():
        if field not in fields:
            raise UserError(f"{name}: columns: no field {field!r}{nearest(field, fields)}; {', '.join(fields)}")
        if column not in there:
            raise UserError(f"{name}: has no column {column!r}{nearest(column, there)}; there are {', '.join(there)}")
    usual = {field: next((one for one in names if one in there), None) for field, names in fields.items()}
    return {field: column for field, column in (usual | dict(columns or {})).items() if column}


def _judged(query: Any, judged: Any, name: str) -> Mapping[Any, Any]:
    if not isinstance(judged, Mapping):
        raise UserError(
            f"{name}: query {query!r}: expected a dictionary from document ids to grades, not a "
            f"{type(judged).__name__} (judgments are given before runs)"
        )
    return judged


def _checked(rows: Iterable[tuple[Any, Any, Any]], name: str) -> Qrels:
    qrels: Qrels = {}
    for query, document, grade in rows:
        try:
            whole = int(grade)
        except (TypeError, ValueError, OverflowError):
            whole = HIGHEST + 1
        if whole != grade or abs(whole) > HIGHEST:
            raise UserError(
                f"{name}: query {str(query)!r}, document {str(document)!r}: grade {grade!r}; "
                f"expected a whole number up to {HIGHEST}"
            )
        judged = qrels.setdefault(str(query), {})
        if judged.setdefault(str(document), whole) != whole:
            raise UserError(f"{name}: query {str(query)!r} has document {str(document)!r} twice, with two grades")
    return qrels
