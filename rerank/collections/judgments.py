"""Judgments in the forms that people have them: dictionaries, data frames, other libraries' objects, files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rerank.collections.base import Qrels, checked_id, checked_ids
from rerank.collections.fields import NAMES, named_columns, some_names
from rerank.collections.names import read_qrels
from rerank.collections.qrels import HIGHEST
from rerank.errors import UserError

FIELDS = some_names("query_id", "doc_id") | {"grade": (*NAMES["grade"], *NAMES["score"])}
"""What the columns of judgments are called: BEIR calls grades ``score``."""


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
    if type(given).__module__.startswith("ranx"):
        return as_qrels(given.to_dict(), name=name)
    if hasattr(given, "to_pandas"):
        given = given.to_pandas()
    if hasattr(given, "itertuples"):
        return _checked(zip(*named_columns(given, FIELDS, columns, name).values(), strict=True), name)
    if isinstance(given, Iterable):
        try:
            return _checked([(one.query_id, one.doc_id, one.relevance) for one in given], name)
        except AttributeError as error:
            raise UserError(f"{name}: {error}; expected objects with query_id, doc_id and relevance") from error
    raise UserError(f"{name}: {type(given).__name__} holds no judgments; give a dictionary, a data frame or a file")


def _checked(rows: Iterable[tuple[Any, Any, Any]], name: str) -> Qrels:
    rows = list(rows)
    queries, documents = (
        checked_ids((row[i] for row in rows), lambda number: f"{name}: judgment {number + 1}") for i in (0, 1)
    )
    qrels: Qrels = {}
    for query, document, (_, _, grade) in zip(queries, documents, rows, strict=True):
        try:
            whole = int(grade)
            right = bool(whole == grade) and abs(whole) <= HIGHEST
        except (TypeError, ValueError, OverflowError):
            right = False
        if not right:
            raise UserError(
                f"{name}: query {query!r}, document {document!r}: grade {grade!r}; "
                f"expected a whole number up to {HIGHEST}"
            )
        judged = qrels.setdefault(query, {})
        if judged.setdefault(document, whole) != whole:
            raise UserError(f"{name}: query {query!r} has document {document!r} twice, with two grades")
    return qrels
