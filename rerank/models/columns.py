"""Columns that models read: of lists with added documents, and given from Python of one query's documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rerank.errors import UserError, one_line
from rerank.lists.view import Lists
from rerank.progress import log
from rerank.storage.arrow import Array


def check_added(lists: Lists, names: Sequence[str]) -> None:
    """Refuse added candidates without a value in a column: the gap itself would tell that they are relevant."""
    added = lists.store.added_rows[lists.rows]
    if added.any() and (unknown := np.isnan(lists.matrix(names)[added]).any(axis=0)).any():
        raise UserError(
            f"{lists.store}: {names[int(unknown.argmax())]} has no value for the relevant documents that were added, "
            "which would give them away; make the lists without --add-relevant, or leave the column out"
        )


def warn_of_added(train: Lists, names: Sequence[str]) -> None:
    """Warn of columns that give added candidates away: all of them score below the last candidate of their lists.

    That is so in the column that orders lists which are cut at their depth. A model that reads it learns that low is
    good, which is true of its training lists alone.
    """
    before = np.concatenate([[0], np.cumsum(train.store.added_rows[train.rows])])
    some = train.select(np.flatnonzero(np.diff(before[train.offsets])))
    if not len(some):
        return
    added, values = some.store.added_rows[some.rows], some.matrix(names)
    lowest = np.minimum.reduceat(np.where(added[:, None], np.inf, values), some.offsets[:-1])
    below = (values <= np.repeat(lowest, some.lengths, axis=0))[added]
    for column in np.flatnonzero(below.all(axis=0)).tolist():
        log.warning(
            "%s: all %d relevant documents that were added score below the other candidates in column %s, so that "
            "a model would learn to rank low scores first; make the lists without --add-relevant",
            *(train, len(below), names[column]),
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
