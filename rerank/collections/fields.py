"""What the fields of runs, judgments, hits and data frames are called: one table for all that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rerank.errors import UserError, nearest

if TYPE_CHECKING:
    import pandas as pd

NAMES: dict[str, tuple[str, ...]] = {
    "query_id": ("query_id", "qid", "query-id", "q_id"),
    "doc_id": ("doc_id", "docid", "docno", "corpus-id", "pid", "_id"),
    "query": ("query", "query_text", "question", "anchor"),
    "text": ("text", "contents", "content", "passage", "document", "answer", "docs"),
    "grade": ("grade", "relevance", "rel", "label", "labels"),
    "score": ("score", "_score"),
    "rank": ("rank",),
}
"""Ours first, then those of ir_datasets and ir-measures, Pyserini, PyTerrier, TIRA, BEIR, ranx, Elasticsearch and data
sets for training. Where several are there, the first one counts."""


def some_names(*fields: str) -> dict[str, tuple[str, ...]]:
    """The names of some fields."""
    return {field: NAMES[field] for field in fields}


def found_columns(
    there: Sequence[str], fields: Mapping[str, Sequence[str]], columns: Mapping[str, str] | None, name: str
) -> dict[str, str]:
    """The columns of those fields that have one."""
    if twice := _repeated(there):
        raise UserError(f"{name}: has two columns {twice!r}; rename one")
    columns = {} if columns is None else columns
    if not isinstance(columns, Mapping):
        raise UserError(f"{name}: columns: expected field and column, as in {{'text': 'passage'}}, not {columns!r}")
    for field, column in columns.items():
        if field not in fields:
            raise UserError(f"{name}: columns: no field {field!r}{nearest(str(field), fields)}; {', '.join(fields)}")
        if str(column) not in there:
            raise UserError(
                f"{name}: has no column {column!r}{nearest(str(column), there)}; there are {', '.join(there)}"
            )
    if twice := _repeated(map(str, columns.values())):
        raise UserError(f"{name}: columns: names {twice!r} for two fields; each has a column of its own")
    told = {field: str(column) for field, column in columns.items()}
    usual = {field: next((one for one in names if one in there), None) for field, names in fields.items()}
    left = {field: column for field, column in usual.items() if column and column not in told.values()}
    found = left | told
    return {field: found[field] for field in fields if field in found}


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]


def named_columns(
    frame: pd.DataFrame,
    fields: Mapping[str, Sequence[str]],
    columns: Mapping[str, str] | None,
    name: str,
    optional: Sequence[str] = (),
) -> dict[str, list[Any]]:
    """What a frame holds of each field, by field; see `found_columns`."""
    there = [str(column) for column in frame.columns]
    found = found_columns(there, fields, columns, name)
    if lacking := next((field for field in fields if field not in found and field not in optional), None):
        raise UserError(
            f"{name}: has no column {fields[lacking][0]}; there are {', '.join(there)}; "
            f"name it with columns={{{lacking!r}: …}}"
        )
    return {field: frame.iloc[:, there.index(column)].tolist() for field, column in found.items()}
