"""What models that read columns refuse of lists with added documents, and what they say of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rerank.errors import UserError

if TYPE_CHECKING:
    from rerank.lists.view import Lists

log = logging.getLogger("rerank")


def check_added(lists: Lists, names: Sequence[str]) -> None:
    """Refuse added candidates of which a system says nothing: the gap itself would tell that they are relevant."""
    added = lists.store.added_rows[lists.rows]
    if added.any() and (unknown := np.isnan(lists.matrix(names)[added]).any(axis=0)).any():
        raise UserError(
            f"{lists.store}: {names[int(unknown.argmax())]} has no value for the relevant documents that were added, "
            "which would give them away; make the lists without --add-relevant, or leave the column out"
        )


def warn_of_added(train: Lists, names: Sequence[str]) -> None:
    """Say which columns give added candidates away: all of them score below the last candidate of their lists.

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
