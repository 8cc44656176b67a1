"""Several lists as one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from rerank.collections import Qrels
from rerank.errors import UserError
from rerank.lists.layout import VERSION
from rerank.lists.store import Store
from rerank.lists.view import Lists


def concat(parts: Sequence[Lists]) -> Lists:
    """Several lists as one, in this order: mixtures to train on, or training and validation lists together.

    Texts, tokens and columns stay where they are until they are asked for; columns are those that all parts have.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> rerank.concat([lists.select([1]), lists.select([0])]).query_ids
    ['2', '1']

    Raises:
        UserError: no parts, a query that two of them have, texts in some of them only, or several orders.
    """
    if not parts:
        raise UserError("concat: expected one or more lists")
    if len({part.store.has_text for part in parts}) > 1:
        raise UserError("concat: some lists have texts, others have none; join like with like")
    seen: dict[str, Lists] = {}
    for part in parts:
        for query in part.query_ids:
            if query in seen:
                raise UserError(
                    f"concat: query {query!r} is in {seen[query].store} and in {part.store}; each may come once"
                )
            seen[query] = part
    stores = [part.store for part in parts]
    first_query = np.cumsum([0] + [store.queries.num_rows for store in stores])
    first_row = np.cumsum([0] + [int(store.ends[-1]) if len(store.ends) else 0 for store in stores])
    orders = {store.order for store in stores}
    judged = {part.store.manifest["judgments"] for part in parts}
    qrels: Qrels | None = None
    if judged != {"grades"}:
        found = [part.qrels for part in parts]
        known = [part for part in found if part is not None]
        qrels = {query: given for part in known for query, given in part.items()} if len(known) == len(parts) else None
    manifest = {
        "version": VERSION,
        "collection": {"name": " + ".join(str(store) for store in stores), "fingerprint": ""},
        "retriever": {},
        "order": orders.pop() if len(orders) == 1 else None,
        "judgments": "grades" if judged == {"grades"} else None if qrels is None else "qrels.trec",
        "candidates": hashlib.sha256("".join(s.manifest["candidates"] for s in stores).encode()).hexdigest(),
        **{key: stores[0].manifest[key] for key in ("features",) if key in stores[0].manifest},
    }
    store = Store(manifest, parts=stores, qrels=qrels)
    return Lists(
        store,
        np.concatenate([part.queries + start for part, start in zip(parts, first_query[:-1], strict=True)]),
        np.concatenate([part.starts + start for part, start in zip(parts, first_row[:-1], strict=True)]),
        np.concatenate([part.lengths for part in parts]),
    )
