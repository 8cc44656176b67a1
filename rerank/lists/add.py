"""Columns for lists that are there already, from files with numbers about their candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rerank.errors import UserError
from rerank.lists.columns import check_name
from rerank.lists.store import Store
from rerank.lists.view import Lists
from rerank.progress import log, tqdm
from rerank.retrieval.pairs import PairFile
from rerank.storage.arrow import Array
from rerank.storage.files import digest

LABELS = ("run", "model")
"""What a column remembers for people only: the names of what it was made from."""

LEAST = 0.1
"""Share of the queries of which a file has to say something; with less, it is of another collection."""


@dataclass(frozen=True)
class Coverage:
    """How many candidates, lists with some, and added candidates a column has values for, and how many there are."""

    candidates: tuple[int, int]
    queries: tuple[int, int]
    added: tuple[int, int]

    @classmethod
    def of(cls, store: Store, values: Array) -> Coverage:
        """The coverage of a column's numbers, ``[T, C]``, added candidates included."""
        known, added = ~np.isnan(values).all(axis=1), store.added_rows
        return cls(
            (int((known & ~added).sum()), int((~added).sum())),
            (len(np.unique(store.query[known & ~added])), len(np.unique(store.query[~added]))),
            (int((known & added).sum()), int(added.sum())),
        )

    def __str__(self) -> str:
        named = {"candidates": self.candidates, "queries": self.queries, "added documents": self.added}
        return ", ".join(f"{known} of {all} {what}" for what, (known, all) in named.items() if all) or "no candidates"


def add_runs(lists: Store | str | Path, files: Mapping[str, str | Path]) -> dict[str, Coverage]:
    """Add columns from files by their names: what systems, teachers or click logs say; and what each of them covers.

    A file is a run (TREC), CSV, JSONL or Parquet; one with several numbers a row becomes one column of several numbers,
    ``NAME/NUMBER``. All are read before the first column is written. A column that is there already, made from the same
    file, stays as it is, so that the same call finishes what was killed.

    Raises:
        UserError: a file that cannot be read, that says nothing of more than nine in ten queries, or has a pair twice;
            a number that is infinite or none; a column of this name that was made from something else.
    """
    store = lists if isinstance(lists, Store) else Store.open(lists)
    # A column remembers the file's name, as folders move, and its content.
    made = {check_name(name): {"run": Path(file).name, "sha256": digest(Path(file))} for name, file in files.items()}
    done = {name for name in files if is_there(store, name, made[name])}
    every = Lists.of(store).with_added()
    found = {name: read_column(every, name, PairFile(path)) for name, path in files.items() if name not in done}
    for name, (values, numbers) in found.items():
        store.add_column(name, values, numbers, made[name])
    coverage = {name: Coverage.of(store, store.entry(name).values) for name in files}
    for name, covered in coverage.items():
        log.info("%s: column %s%s: %s", store, name, ", there already" if name in done else "", covered)
    return coverage


def is_there(store: Store, name: str, made: Mapping[str, Any]) -> bool:
    """Whether a store has this column already, made from the same."""
    if name not in store.column_names:
        return False
    known = store.entry(name).made
    if all(known.get(key) == value for key, value in made.items() if key not in LABELS):
        return True
    raise UserError(
        f"{store}: has a column {name} already, made from something else; choose another name, or remove it first "
        f"with --drop {name}"
    )


def _rows(every: Lists, queries: pa.DictionaryArray, documents: pa.Array) -> Array:
    """The rows of candidates by the ids of query and document, ``[n]`` int64; -1 where a query does not have it."""
    store, result = every.store, np.full(len(queries), -1, dtype=np.int64)
    query = _positions(queries.dictionary, store.queries.column("query_id"))[queries.indices.to_numpy()]
    rows = every.select(np.unique(query[query >= 0])).row_numbers  # no more than the lists of these queries
    candidates = store.document[rows]
    there = np.unique(candidates)
    at = _positions(documents, store.documents.column("doc_id").take(pa.array(there)))
    both = np.flatnonzero((query >= 0) & (at >= 0))
    count = store.documents.num_rows
    keys = store.query[rows].astype(np.int64) * count + candidates
    places = _positions(pa.array(query[both] * count + there[at[both]]), pa.array(keys))
    result[both[places >= 0]] = rows[places[places >= 0]]
    return result


def _positions(values: pa.Array, known: pa.Array | pa.ChunkedArray) -> Array:
    """The position of each value among those that are known, ``[n]`` int64; -1 where it is not."""
    return pc.index_in(values, value_set=known.cast(values.type)).fill_null(-1).to_numpy().astype(np.int64)


def read_column(every: Lists, name: str, file: PairFile) -> tuple[Array, list[str]]:
    """The numbers of a column for all candidates of a store, ``[T, C]`` float32, and their names."""
    store = every.store
    names = [name] if len(file.names) == 1 else [check_name(number) for number in file.names]
    values = np.full((len(store.document), len(names)), np.nan, dtype=np.float32)
    seen = np.zeros(len(values), dtype=bool)
    read, example = 0, ("", "")
    with tqdm(desc=f"reading {file.path.name}", unit=" rows", disable=None, delay=1) as bar:
        for batch in file.batches:
            rows = _rows(every, batch.queries, batch.documents)
            known = np.flatnonzero(rows >= 0)
            first = np.zeros(len(known), dtype=bool)
            first[np.unique(rows[known], return_index=True)[1]] = True
            if len(twice := np.flatnonzero(seen[rows[known]] | ~first)):
                row = int(known[twice[0]])
                raise UserError(
                    f"{batch.where(row)}: document {batch.documents[row].as_py()!r} of query "
                    f"{batch.queries[row].as_py()!r} a second time; keep one"
                )
            seen[rows[known]] = True
            values[rows[known]] = batch.values[known]
            example = example if read else (batch.queries[0].as_py(), batch.documents[0].as_py())
            read += len(rows)
            bar.update(len(rows))
    if not read:
        raise UserError(f"{file.path}: is empty; expected a row per query and document, with a number")
    told, all = Coverage.of(store, values).queries
    if told < LEAST * all or not told:
        query, document = (store.table(name).column(0)[:1].to_pylist() for name in ("queries", "documents"))
        raise UserError(
            f"{file.path}: says something of the candidates of {told} of {all} queries only; its ids are such as "
            f"{example[0]!r} and {example[1]!r}, those of {store} such as {''.join(query)!r} "
            f"and {''.join(document)!r}; are they of the same collection?"
        )
    if skipped := read - int(seen.sum()):
        log.info("%s: %d of %d rows are about no candidate and were skipped", file.path, skipped, read)
    return values, names
