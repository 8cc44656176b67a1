"""Lists in memory, or some of a folder's, as a folder of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from rerank.arrow import Array, by_first_appearance, write_arrow
from rerank.collections import Qrels
from rerank.lists.layout import DOCUMENTS, QUERIES
from rerank.lists.place import new_lists
from rerank.lists.store import Store
from rerank.lists.writer import StoreWriter, write_qrels


def save(
    store: Store, queries: Array, lengths: Array, rows: Array, qrels: Qrels | None, folder: str | Path, name: str
) -> None:
    """Write some lists of a store as a folder, with texts, grades, judgments and every column.

    ``queries`` and ``lengths`` are ``[Q]``, ``rows`` of the candidates ``[T]``; those that were added stay so.

    Raises:
        UserError: the place is taken.
    """
    chosen, numbers = by_first_appearance(store.document[rows], store.documents.num_rows)
    ends = np.cumsum(lengths)
    before = np.concatenate([[0], np.cumsum(store.added_rows[rows])])
    added = before[ends] - before[ends - lengths]
    judgments = None if qrels is None or store.judged_by_grades else qrels
    with new_lists(folder) as temporary:
        for file, schema, table, taken in (
            ("queries", QUERIES, store.queries, queries),
            ("documents", DOCUMENTS, store.documents, chosen),
        ):
            kept = pa.schema([field for field in schema if field.name in table.column_names])
            some = table.take(pa.array(taken))
            write_arrow(temporary / f"{file}.arrow", kept, [{key: some.column(key).to_pylist() for key in kept.names}])
        columns = {column: store.entry(column) for column in store.column_names}
        with StoreWriter(temporary, {column: entry.names for column, entry in columns.items()}) as writer:
            values = {column: entry.values[rows] for column, entry in columns.items()}
            writer.add(lengths, added, numbers, store.grades[rows], **values)
            if judgments is not None:
                write_qrels(temporary / "qrels.trec", judgments)
            counts = {"queries": len(queries), "documents": len(chosen), "pairs": len(rows)}
            writer.close(
                collection=store.manifest["collection"],
                retriever=store.manifest["retriever"],
                order=store.order,
                judgments="grades" if store.judged_by_grades else None if judgments is None else "qrels.trec",
                counts=counts | {"added_relevant": int(added.sum())},
                made={"saved from": name},
                **{key: store.manifest[key] for key in ("features", "depth") if key in store.manifest},
            )
