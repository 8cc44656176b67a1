"""Content hashes of lists, by which a run knows whether it was trained on the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from rerank.lists.columns import SCALED
from rerank.lists.view import Lists
from rerank.storage.arrow import Array, taken
from rerank.storage.files import digest

BLOCK = 65_536
"""Documents that are hashed at a time."""


def content_hashes(lists: Lists, columns: Sequence[str] = ()) -> dict[str, str]:
    """Hash the content of some lists, wherever they are stored.

    Documents are numbered by their first appearance, so that other lists of the same folder do not count.

    Returns:
        Hashes of ``texts`` (ids and texts of queries and documents), ``candidates`` (documents in their order),
        ``labels`` (all judgments) and of each column.
    """
    import pandas as pd

    numbers, rows = pd.factorize(lists.documents)
    texts = hashlib.sha256()
    for table, chosen in ((lists.store.queries, lists.queries), (lists.store.documents, rows)):
        for column in table.columns:
            for start in range(0, len(chosen), BLOCK):
                some = taken(column, chosen[start : start + BLOCK]).to_pylist()
                texts.update(digest(*(text or "" for text in some)).encode())
    # Judgments of documents that were not retrieved count in measures.
    qrels = {} if lists.judged_by_grades else lists.qrels or {}
    judged = [repr(sorted(qrels.get(query, {}).items())) for query in lists.query_ids]
    found = {
        "texts": texts.hexdigest(),
        "candidates": digest(lists.offsets.astype("<i8").tobytes(), numbers.tobytes()),
        "labels": digest(lists.grades.astype("<i8").tobytes(), *judged),
    }
    return found | {f"column {name}": digest(_column(lists, name).tobytes()) for name in dict.fromkeys(columns)}


def _column(lists: Lists, name: str) -> Array:
    column, is_scaled, depth = name.partition(SCALED)
    if is_scaled:
        return lists.store.scaled(column, int(depth), lists.row_numbers)
    return lists.matrix([name])
