"""What models that read columns refuse of lists with added documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rerank.errors import UserError

if TYPE_CHECKING:
    from rerank.lists.view import Lists


def check_added(lists: Lists, names: Sequence[str]) -> None:
    """Refuse added candidates of which a system says nothing: the gap itself would tell that they are relevant.

    Args:
        lists: the lists, as they are shown.
        names: the columns that the model reads, or numbers of theirs.

    Raises:
        UserError: names the column.
    """
    added = lists.store.added_rows[lists.rows]
    if added.any() and (unknown := np.isnan(lists.matrix(names)[added]).any(axis=0)).any():
        raise UserError(
            f"{lists}: {names[int(unknown.argmax())]} says nothing of the relevant documents that were added, which "
            "would give them away; make the lists without --add-relevant, or leave the column out"
        )
