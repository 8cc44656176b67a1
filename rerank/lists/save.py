"""Lists in memory, or some of a folder's, as a folder of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from rerank.collections import Qrels
from rerank.errors import UserError
from rerank.lists.layout import DOCUMENTS, QUERIES
from rerank.lists.place import new_lists
from rerank.lists.store import Store
from rerank.lists.writer import StoreWriter, write_qrels
from rerank.retrieval.runs import write_run
from rerank.retrieval.table import RunTable
from rerank.storage.arrow import Array, by_first_appearance, taken, write_arrow


def save(
    store: Store,
    queries: Array,
    lengths: Array,
    rows: Array,
    qrels: Qrels | None,
    run: RunTable | None,
    folder: str | Path,
    replace: bool,
) -> None:
    """Write some lists of a store as a folder, with texts, grades, judgments, their run and every column.

    ``queries`` and ``lengths`` are ``[Q]``, ``rows`` of the candidates ``[T]``; those that were added stay so.
    """
    if len(again := np.flatnonzero(np.bincount(queries, minlength=1) > 1)):
        query = store.queries.column("query_id")[int(again[0])].as_py()
        raise UserError(f"{folder}: query {query!r} is chosen twice; a folder has it once")
    chosen, numbers = by_first_appearance(store.document[rows], store.documents.num_rows)
    ends = np.cumsum(lengths)
    before = np.concatenate([[0], np.cumsum(store.added_rows[rows])])
    added = before[ends] - before[ends - lengths]
    with new_lists(folder, replace) as temporary:
        for file, schema, table, some in (
            ("queries", QUERIES, store.queries, queries),
            ("documents", DOCUMENTS, store.documents, chosen),
        ):
            kept = pa.schema([field for field in schema if field.name in table.column_names])
            texts = {name: taken(table.column(name), some).to_pylist() for name in kept.names}
            write_arrow(temporary / f"{file}.arrow", kept, [texts])
        columns = {column: store.entry(column) for column in store.column_names}
        with StoreWriter(temporary, {column: entry.names for column, entry in columns.items()}) as writer:
            values = {column: entry.values[rows] for column, entry in columns.items()}
            writer.add(lengths, added, numbers, store.grades[rows], **values)
            if qrels is not None:
                write_qrels(temporary / "qrels.trec", qrels)
            if run is not None:
                write_run(temporary / "run.trec", run, store.order or "")
            counts = {"queries": len(queries), "documents": len(chosen), "pairs": len(rows)}
            writer.close(
                collection=store.manifest["collection"],
                retriever=store.manifest["retriever"],
                order=store.order,
                judgments="grades" if store.judged_by_grades else None if qrels is None else "qrels.trec",
                counts=counts | {"added_relevant": int(added.sum())},
                made={column: entry.made for column, entry in columns.items()},
                **{key: store.manifest[key] for key in ("features", "depth") if key in store.manifest},
            )
