"""Add columns to existing lists, from files with numbers about their candidates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rerank.errors import UserError
from rerank.lists.columns import check_name
from rerank.lists.store import Store
from rerank.progress import log
from rerank.retrieval.runs import read_run
from rerank.storage.arrow import Array
from rerank.storage.files import digest

LABELS = ("run", "model")
"""Parts of a column's origin that do not identify it: names, which people read."""

LEAST = 0.1
"""Smallest share of the queries that a file must cover; below it, the file is of another collection."""


def log_coverage(store: Store, name: str, done: bool = False) -> None:
    """Log how many candidates a column has numbers for; ``done`` if it was there already."""
    known, added = ~np.isnan(store.entry(name).values).all(axis=1), store.added_rows
    text = f"{(known & ~added).sum()} of {(~added).sum()} candidates"
    if added.any():
        text += f", {(known & added).sum()} of {added.sum()} added documents"
    log.info("%s: column %s%s: %s", store, name, ", there already" if done else "", text)


def add_runs(lists: Store | str | Path, files: Mapping[str, str | Path]) -> None:
    """Add columns of scores from run files (see `read_run`), by column name.

    All are read before the first column is written. A column that exists already, made from the same file, stays as it
    is, so that the same call finishes what was killed.

    Raises:
        UserError: a file that cannot be read, or that covers less than a tenth of the queries; or a column of this name
            that was made from something else.
    """
    store = lists if isinstance(lists, Store) else Store.open(lists)
    # A column remembers the file's name, as folders move, and its content.
    made = {check_name(name): {"run": Path(file).name, "sha256": digest(Path(file))} for name, file in files.items()}
    done = {name for name in files if is_there(store, name, made[name])}
    found = {name: read_column(store, path) for name, path in files.items() if name not in done}
    for name, values in found.items():
        store.add_column(name, values, made=made[name])
    for name in files:
        log_coverage(store, name, name in done)


def is_there(store: Store, name: str, made: Mapping[str, Any]) -> bool:
    """Return True if a store has this column already, made from the same."""
    if name not in store.column_names:
        return False
    known = store.entry(name).made
    if all(known.get(key) == value for key, value in made.items() if key not in LABELS):
        return True
    raise UserError(
        f"{store}: has a column {name} already, made from something else; choose another name, or remove it first "
        f"with --drop {name}"
    )


def read_column(store: Store, path: str | Path) -> Array:
    """Read the scores of all candidates of a store from a run file, ``[T]`` float32."""
    run = read_run(path)
    if not len(run):
        raise UserError(f"{path}: empty; expected a row per query and document, with a score")
    queries = pa.array(np.repeat(np.array(run.queries, dtype=object), np.diff(run.offsets)), pa.string())
    rows = _rows(store, queries, run.documents.cast(pa.string()).combine_chunks())
    known = np.flatnonzero(rows >= 0)
    values = np.full(len(store.document), np.nan, dtype=np.float32)
    values[rows[known]] = run.scores[known]
    whole = ~store.added_rows
    told, all = (len(np.unique(store.query[some])) for some in (whole & ~np.isnan(values), whole))
    if told < LEAST * all or not told:
        query, document = (store.table(name).column(0)[:1].to_pylist() for name in ("queries", "documents"))
        raise UserError(
            f"{path}: has scores for the candidates of {told} of {all} queries only; its ids are such as "
            f"{run.queries[0]!r} and {run.documents[0].as_py()!r}, those of {store} such as {''.join(query)!r} and "
            f"{''.join(document)!r}; are they of the same collection?"
        )
    if skipped := len(rows) - len(known):
        log.info("%s: %d of %d rows match no candidate and were skipped", path, skipped, len(rows))
    return values


def _rows(store: Store, queries: pa.Array, documents: pa.Array) -> Array:
    """Find the rows of candidates by the ids of query and document, ``[n]`` int64; -1 if a query lacks it."""
    query = _positions(queries, store.queries.column("query_id"))
    ids = store.documents.column("doc_id")
    document, first = _positions(documents, ids), _positions(ids, ids)  # parts of a concatenation may share documents
    count = store.documents.num_rows
    keys = store.query.astype(np.int64) * count + first[store.document]
    known = (query >= 0) & (document >= 0)
    return _positions(pa.array(np.where(known, query * count + document, -1)), pa.array(keys))


def _positions(values: pa.Array | pa.ChunkedArray, known: pa.Array | pa.ChunkedArray) -> Array:
    """Find the position of each value among the known ones, ``[n]`` int64; -1 if it is not there."""
    return pc.index_in(values, value_set=known.cast(values.type)).fill_null(-1).to_numpy().astype(np.int64)
