"""Columns that models read: of lists with added documents, and given from Python of one query's documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rerank.errors import UserError, one_line
from rerank.lists.view import Lists
from rerank.storage.arrow import Array


def check_column(lists: Lists, name: str, reader: str, instead: str = "") -> None:
    """Refuse lists without a column of one number a candidate."""
    try:
        lists.select([]).column(name)
    except UserError as error:
        way = f"add it with `rerank add --lists {lists.store} --run {name}=FILE`{instead}"
        raise UserError(f"{reader} column {name}; {error}; {way}") from error


def check_added(lists: Lists, names: Sequence[str]) -> None:
    """Refuse added candidates without a value in a column: the gap itself would tell that they are relevant."""
    added = lists.store.added_rows[lists.rows]
    if added.any() and (unknown := np.isnan(lists.matrix(names)[added]).any(axis=0)).any():
        raise UserError(
            f"{lists.store}: {names[int(unknown.argmax())]} has no value for the relevant documents that were added, "
            "which would give them away; make the lists without --add-relevant, or leave the column out"
        )


def given_column(
    columns: Mapping[str, Sequence[float] | Array], name: str, count: int, reader: str, instead: str = ""
) -> Array:
    """Return a column of one query's documents, ``[n]`` float32; NaN where a system did not return a document."""
    if name not in columns:
        raise UserError(f"columns: {reader} column {name}; give its scores of the documents{instead}")
    try:
        values = np.asarray(columns[name], dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"columns: {name} has something else than numbers ({one_line(error)})") from error
    if np.isinf(values).any():
        raise UserError(f"columns: {name} has {values[np.isinf(values)][0]}; expected finite numbers, or None")
    if values.shape != (count,):
        raise UserError(f"columns: {name} has {values.size} numbers, there are {count} documents")
    return values
