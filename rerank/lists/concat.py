"""Concatenate lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rerank.collections import Qrels
from rerank.errors import UserError
from rerank.lists.columns import Column
from rerank.lists.layout import IDS
from rerank.lists.store import Store
from rerank.lists.view import Lists


class JoinedStore(Store):
    """Several stores as one; texts, tokens and columns stay where they are until they are read."""

    def __init__(self, manifest: dict[str, Any], parts: Sequence[Store], qrels: Qrels | None) -> None:
        super().__init__(manifest, qrels=qrels)
        self.parts = parts

    def table(self, name: str) -> pa.Table:
        if name not in self._tables:
            self._tables[name] = self._joined(name)
        return self._tables[name]

    def _joined(self, name: str) -> pa.Table:
        """Join a table: texts as they are, rows numbered on from one part to the next."""
        tables = [part.table(name) for part in self.parts]
        if name in IDS:
            return pa.concat_tables(tables, promote_options="default")
        counted = {"query": "queries", "document": "documents", "end": "candidates"}
        joined = {}
        for column in tables[0].column_names:
            values = [table[column].to_numpy() for table in tables]
            if column in counted:
                rows = [part.table(counted[column]).num_rows for part in self.parts[:-1]]
                before = np.cumsum([0, *rows]).astype(values[0].dtype)
                values = [some + start for some, start in zip(values, before, strict=True)]
            joined[column] = np.concatenate(values)
        return pa.table(joined)

    @property
    def column_names(self) -> list[str]:
        """Return the columns that all parts have."""
        return sorted(set.intersection(*(set(part.column_names) for part in self.parts)) | {*self._columns})

    def _load(self, name: str) -> Column:
        found = [part.entry(name) for part in self.parts]
        if len({column.names for column in found}) > 1:
            raise UserError(f"column {name}: has other names in {self.parts[0]} than elsewhere; join like with like")
        return Column(np.concatenate([column.values for column in found]), found[0].names, found[0].made)


def concat(parts: Sequence[Lists]) -> Lists:
    """Concatenate lists: mixtures to train on, or training and validation lists together.

    Texts, tokens and columns stay where they are until they are read; columns are those that all parts have.

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
    orders = {store.order for store in stores}
    judged = {store.manifest["judgments"] for store in stores}
    qrels: Qrels | None = None
    if judged != {"grades"} and any(part.qrels is not None for part in parts):
        qrels = {query: given for part in parts for query, given in (part.qrels or {}).items()}
    manifest = {
        "collection": {"name": " + ".join(map(str, stores)), "fingerprint": ""},
        "retriever": {},
        "order": orders.pop() if len(orders) == 1 else None,
        "judgments": "grades" if judged == {"grades"} else None if qrels is None else "qrels.trec",
        **{key: stores[0].manifest[key] for key in ("features",) if key in stores[0].manifest},
    }
    first_query = np.cumsum([0, *(store.queries.num_rows for store in stores)])
    first_row = np.cumsum([0, *(store.table("candidates").num_rows for store in stores)])
    return Lists(
        JoinedStore(manifest, stores, qrels),
        np.concatenate([part.queries + start for part, start in zip(parts, first_query, strict=False)]),
        np.concatenate([part.starts + start for part, start in zip(parts, first_row, strict=False)]),
        np.concatenate([part.lengths for part in parts]),
    )
