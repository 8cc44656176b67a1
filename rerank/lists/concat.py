"""Concatenate lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rerank.collections.base import Qrels
from rerank.errors import UserError
from rerank.lists.columns import Column
from rerank.lists.store import Store, memory_store
from rerank.lists.view import Lists


def concat(parts: Sequence[Lists]) -> Lists:
    """Concatenate lists: several data sets to train on, or training and validation lists together.

    Texts and tokens stay where they are; columns are those that all parts have.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> rerank.concat([lists.select([1]), lists.select([0])]).query_ids
    ['2', '1']

    Raises:
        UserError: no parts, a query that two of them have, or texts in some of them only.
    """
    if not parts:
        raise UserError("concat: expected one or more lists")
    if len({part.store.has_text for part in parts}) > 1:
        raise UserError("concat: some lists have texts, others have none; join like with like")
    seen: dict[str, Lists] = {}
    for part in parts:
        for query in part.query_ids:
            if query in seen:
                raise UserError(f"concat: query {query!r} is in {seen[query].store} and in {part.store}; keep it once")
            seen[query] = part
    stores = [part.store for part in parts]
    first_query = np.cumsum([0, *(store.queries.num_rows for store in stores)])
    first_row = np.cumsum([0, *(len(store.document) for store in stores)])
    store = _joined(stores, [part.qrels for part in parts])
    return Lists(
        store,
        np.concatenate([part.queries + start for part, start in zip(parts, first_query, strict=False)]),
        np.concatenate([part.starts + start for part, start in zip(parts, first_row, strict=False)]),
        np.concatenate([part.lengths for part in parts]),
    )


def _joined(stores: Sequence[Store], qrels: Sequence[Qrels | None]) -> Store:
    """Join whole stores, and the judgments of the lists that are taken from them."""
    orders = {store.order for store in stores}
    by_grades = all(store.judged_by_grades for store in stores)
    given = [] if by_grades else [one for one in qrels if one is not None]
    judged = {query: grades for one in given for query, grades in one.items()} if given else None
    columns = {}
    for name in set.intersection(*(set(store.column_names) for store in stores)):
        found = [store.entry(name) for store in stores]
        if len({column.names for column in found}) > 1:
            raise UserError(f"column {name}: has other names in {stores[0]} than elsewhere; join like with like")
        columns[name] = Column(np.concatenate([column.values for column in found]), found[0].names, found[0].made)
    first_document = np.cumsum([0, *(store.documents.num_rows for store in stores)])
    tables = {
        name: pa.concat_tables([store.table(name) for store in stores], promote_options="default")
        for name in ("queries", "documents")
    }
    store = memory_store(
        " + ".join(map(str, stores)),
        tables,
        np.concatenate([np.diff(store.ends, prepend=0) for store in stores]),
        np.concatenate([store.document + start for store, start in zip(stores, first_document, strict=False)]),
        np.concatenate([store.grades for store in stores]),
        columns,
        orders.pop() if len(orders) == 1 else None,
        judged,
        by_grades,
        np.concatenate([store.added for store in stores]),
    )
    store.parts = stores
    return store
