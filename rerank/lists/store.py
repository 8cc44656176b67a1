"""Storage of ranked lists, in memory or in a folder: Arrow tables, any number of columns, a manifest.

=====================  ================================================================================================
``manifest.json``      version, where everything came from, counts
``queries.arrow``      ``query_id`` and, of texts, ``text`` and perhaps ``instruction``
``documents.arrow``    ``doc_id`` and, of texts, ``text``: each distinct document once
``candidates.arrow``   ``query``, ``document`` (rows of the two), ``grade``: a row per candidate, list after list, best
                       first
``ends.arrow``         ``end`` (where each list ends among the candidates), ``added`` (how many of its last are hidden)
``qrels.trec``         all judgments, also of documents that are not candidates
``columns/NAME.arrow`` what a system says of every candidate, a number or several; NaN where it did not return it
``run.trec``           the ranking, for other tools
=====================  ================================================================================================

A folder is immutable but for its columns, which come and go as whole files. It is mapped, not read: what a list does
not need is never touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rerank import __version__
from rerank.collections.base import Qrels
from rerank.collections.names import read_qrels
from rerank.errors import NotFoundError, UserError, nearest
from rerank.lists.columns import (
    Column,
    as_column,
    check_name,
    column_file,
    flat_names,
    load_column,
    write_column,
    z_scores,
)
from rerank.retrieval.runs import Run, Scored, write_run
from rerank.storage.arrow import Array, FlatFile, blocks, ranges, read_arrow
from rerank.storage.files import atomic_file, cache_folder, digest, exclusive_lock, read_json, write_json

VERSION = 2
"""Version of the folder's layout; a folder of another version is refused."""

Z_ROWS = 1 << 20
"""Candidates whose z is computed together."""

MANIFEST = "manifest.json"
QUERIES = pa.schema([("query_id", pa.string()), ("text", pa.string())])
DOCUMENTS = pa.schema([("doc_id", pa.string()), ("text", pa.string())])
CANDIDATES = pa.schema([("query", pa.int32()), ("document", pa.int32()), ("grade", pa.int16())])
ENDS = pa.schema([("end", pa.int64()), ("added", pa.int32())])
TABLES = ("queries", "documents", "candidates", "ends")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a lists folder and check its version."""
    path = folder / MANIFEST
    if not path.is_file():
        raise NotFoundError(f"{folder}: not a lists folder (no {MANIFEST}); make one with `rerank retrieve`")
    manifest = read_json(path)
    if (version := manifest.get("version")) != VERSION:
        raise UserError(f"{path}: lists of version {version}, this is version {VERSION}; build them again")
    if lost := [name for name in TABLES if not (folder / f"{name}.arrow").is_file()]:
        raise NotFoundError(f"{folder / lost[0]}.arrow: no such file; build the lists again")
    return manifest


def is_lists_folder(folder: Path) -> bool:
    """Return True for a folder of ranked lists, whole or damaged."""
    try:
        return "counts" in json.loads((folder.expanduser() / MANIFEST).read_bytes())
    except (OSError, ValueError, TypeError, RecursionError):
        return False


class Store:
    """Ranked lists as they are stored, in a folder or in memory."""

    def __init__(
        self,
        manifest: dict[str, Any],
        folder: Path | None = None,
        tables: Mapping[str, pa.Table] | None = None,
        columns: Mapping[str, Column] | None = None,
        qrels: Qrels | None = None,
    ) -> None:
        self.manifest, self.folder = manifest, folder
        self.parts: Sequence[Store] = ()  # joined ones, which keep their own tokens
        self._tables: dict[str, pa.Table] = dict(tables or {})
        self._columns: dict[str, Column] = dict(columns or {})
        self._qrels = qrels
        self._scaled: dict[tuple[str, int], Array] = {}
        self.memory: dict[str, Any] = {}
        """Results that are computed once, such as tokens."""

    @classmethod
    def open(cls, folder: str | Path) -> Store:
        """Open a folder; nothing but its manifest is read."""
        folder = Path(folder).expanduser()
        return cls(read_manifest(folder), folder)

    def __str__(self) -> str:
        """Name the folder; of lists in memory and in the cache (feature files) the source."""
        if self.folder is None or cache_folder() / "letor" in self.folder.parents:
            return str(self.manifest["collection"]["name"])
        return str(self.folder)

    @property
    def order(self) -> str | None:
        """The name of the column that orders the lists; None if nothing ranked them."""
        return self.manifest["order"]

    def table(self, name: str) -> pa.Table:
        """Return one of the four tables, mapped at its first use."""
        if name not in self._tables:
            assert self.folder is not None
            self._tables[name] = read_arrow(self.folder / f"{name}.arrow")
        return self._tables[name]

    @property
    def queries(self) -> pa.Table:
        return self.table("queries")

    @property
    def documents(self) -> pa.Table:
        return self.table("documents")

    @property
    def has_text(self) -> bool:
        return "text" in self.documents.column_names

    @cached_property
    def query(self) -> Array:
        """The row of each candidate's query, ``[T]`` int32."""
        return self.table("candidates")["query"].to_numpy()

    @cached_property
    def document(self) -> Array:
        """The row of each candidate's document, ``[T]`` int32."""
        return self.table("candidates")["document"].to_numpy()

    @cached_property
    def grades(self) -> Array:
        """The grade of each candidate, ``[T]`` int16; 0 where unjudged or judged negative."""
        return self.table("candidates")["grade"].to_numpy()

    @cached_property
    def ends(self) -> Array:
        """End of each list among the candidates, ``[Q]`` int64."""
        return self.table("ends")["end"].to_numpy()

    @cached_property
    def added(self) -> Array:
        """Number of each list's last candidates that were added, and are hidden by default, ``[Q]`` int32."""
        return self.table("ends")["added"].to_numpy()

    @property
    def added_rows(self) -> Array:
        """Mask of the candidates that were added, ``[T]`` bool."""
        mask = np.zeros(len(self.document), dtype=bool)
        mask[ranges(self.ends - self.added, self.added)] = True
        return mask

    @cached_property
    def qrels(self) -> Qrels | None:
        """All judgments; None if there are none, or if the grades are the judgments."""
        if self.folder is None or self.manifest["judgments"] != "qrels.trec":
            return self._qrels
        return read_qrels(self.folder / "qrels.trec")

    @property
    def judged_by_grades(self) -> bool:
        """True if the candidates' grades are all judgments, as in feature files."""
        return self.manifest["judgments"] == "grades"

    @property
    def column_names(self) -> list[str]:
        if self.folder is None:
            return sorted(self._columns)
        files = (path.stem for path in (self.folder / "columns").glob("*.arrow") if path.name[0] != ".")
        return sorted({*files, *self._columns})

    def numbers_by_column(self) -> dict[str, list[str]]:
        """Return the names of each column's numbers; the column that orders the lists comes first."""
        found = {}
        for name in sorted(self.column_names, key=lambda name: name != self.order):
            numbers = self.entry(name).names
            found[name] = [name] if numbers == (name,) else [f"{name}/{number}" for number in numbers]
        return found

    def entry(self, name: str) -> Column:
        if name not in self._columns:
            self._columns[name] = self._load(name)
        return self._columns[name]

    def _load(self, name: str) -> Column:
        if self.folder is None or name not in self.column_names:
            there = f"there are {', '.join(self.column_names)}" if self.column_names else "there are none"
            raise UserError(f"{self}: has no column {name!r}{nearest(name, self.column_names)}; {there}")
        return load_column(self.column_path(name), self.manifest["candidates"])

    def column_path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / "columns" / f"{name}.arrow"

    def add_column(
        self, name: str, values: Array, names: Sequence[str] | None = None, made: Mapping[str, Any] | None = None
    ) -> None:
        """Add a number, or several, for every candidate; the other files of a folder stay untouched.

        Args:
            name: what the column is called.
            values: ``[T]`` or ``[T, C]``, added candidates included.
            names: the names of the C numbers; None for a single one.
            made: who made it, from what.
        """
        self._check_absent(check_name(name))
        values, called = as_column(name, values), tuple(names or [name])
        if len(values) != len(self.document):
            raise UserError(
                f"column {name}: has {len(values)} rows, the lists have {len(self.document)} candidates with added ones"
            )
        if self.folder is None:
            self._columns[name] = Column(values, called, made or {})
            return
        path = self.column_path(name)
        with exclusive_lock(path, wait=True):
            self._check_absent(name)
            with atomic_file(path) as temporary, column_file(path.parent, len(called)) as file:
                file.add(values=values)
                write_column(file, temporary, called, self.manifest["candidates"], made or {})

    def beside(self, columns: Mapping[str, Array]) -> Store:
        """Return a store with further columns in memory, ``[T]`` each; a folder stays as it is."""
        made = {name: Column(as_column(name, values), (name,), {}) for name, values in columns.items()}
        store = copy(self)
        store._columns, store._scaled = self._columns | made, {}
        return store

    def drop_column(self, name: str) -> None:
        """Remove a column from a folder, whole or damaged."""
        if name not in self.column_names:
            self._load(name)
        if name == self.order:
            raise UserError(f"{self}: is in the order of column {name}, which therefore stays")
        path = self.column_path(name)
        with exclusive_lock(path, wait=True):
            path.unlink(missing_ok=True)
        self._columns.pop(name, None)
        self._scaled.clear()

    def _check_absent(self, name: str) -> None:
        if name in self.column_names:
            raise UserError(f"{self}: has a column {name} already; choose another name, or remove it first")

    def matrix(self, names: Sequence[str], rows: Array | slice = slice(None)) -> Array:
        """Return columns side by side, ``[n, C]`` float32; a view if one file has them, and rows are a slice.

        A name is that of a column, all of its numbers, or of one of them as ``NAME/NUMBER'S NAME``.
        """
        files = list(dict.fromkeys(name.partition("/")[0] for name in names))
        entries = {file: self.entry(file) for file in files}
        if list(flat_names(names, entries)) == [f"{files[0]}/{name}" for name in entries[files[0]].names]:
            return entries[files[0]].values[rows]
        chosen = [name.partition("/")[::2] for name in flat_names(names, entries)]
        return np.stack([entries[file].one(number)[rows] for file, number in chosen], axis=1)

    def column(self, name: str, rows: Array | slice = slice(None)) -> Array:
        """Return a column of one number a candidate, ``[n]`` float32."""
        matrix = self.matrix([name], rows)
        if matrix.shape[1] != 1:
            such = next(flat_names([name], {name: self.entry(name)}))
            raise UserError(f"column {name}: has {matrix.shape[1]} numbers a candidate; name one, such as {such}")
        return matrix[:, 0]

    def scaled(self, name: str, depth: int, rows: Array | slice = slice(None)) -> Array:
        """Return the z of a column over whole stored lists, ``[n]`` float32, for any rows."""
        if (key := (name, depth)) not in self._scaled:
            offsets, added, parts = np.append(0, self.ends), self.added_rows, [np.zeros(0, np.float32)]
            for first, last in blocks(offsets, Z_ROWS):
                own = slice(int(offsets[first]), int(offsets[last]))
                parts.append(z_scores(self.column(name, own), offsets[first : last + 1] - own.start, added[own], depth))
            self._scaled[key] = np.concatenate(parts)
        return self._scaled[key][rows]

    def in_memory(self) -> Store:
        """Map everything, so that the folder may be deleted: mapped files stay until they are let go."""
        tables, columns = {name: self.table(name) for name in TABLES}, {n: self.entry(n) for n in self.column_names}
        return Store(self.manifest, tables=tables, columns=columns, qrels=self.qrels)


class StoreWriter(ExitStack):
    """Collects candidates and columns, and writes what a lists folder has beside its texts.

    ``queries.arrow`` and ``documents.arrow`` are written by whoever has them, before :meth:`finish`.
    """

    def __init__(self, folder: Path, columns: Mapping[str, Sequence[str]]) -> None:
        super().__init__()
        self.folder, self.names = folder, {check_name(name): tuple(numbers) for name, numbers in columns.items()}
        self.lists = 0
        self._candidates = self.enter_context(FlatFile(folder, CANDIDATES))
        self._ends = self.enter_context(FlatFile(folder, ENDS))
        self._columns = {name: self.enter_context(column_file(folder, len(n))) for name, n in self.names.items()}

    def add(self, lengths: Array, added: Array, documents: Array, grades: Array, /, **columns: Array) -> None:
        """Append lists.

        Args:
            lengths: ``[q]`` candidates of every list, added ones included.
            added: ``[q]`` how many of each list's last ones were added.
            documents: ``[n]`` rows of the candidates' documents, list after list.
            grades: ``[n]``.
            columns: ``[n]`` or ``[n, C]`` for each column.
        """
        ends = np.cumsum(lengths, dtype=np.int64)
        queries = np.repeat(np.arange(self.lists, self.lists + len(lengths)), lengths)
        self._ends.add(end=ends + self._candidates.rows, added=np.asarray(added))
        self._candidates.add(query=queries, document=np.asarray(documents), grade=np.asarray(grades))
        for name, values in columns.items():
            self._columns[name].add(values=as_column(name, values))
        self.lists += len(lengths)

    def finish(
        self,
        *,
        collection: Mapping[str, Any],
        retriever: Mapping[str, Any],
        counts: Mapping[str, int],
        made: Mapping[str, Mapping[str, Any]],
        order: str | None,
        run: Run | Iterable[tuple[str, Sequence[Scored]]],
        qrels: Qrels | None,
        by_grades: bool = False,
    ) -> None:
        """Write everything; ``run`` is the ranking by column ``order``, ``by_grades`` says that all judgments are."""
        self._candidates.write(self.folder / "candidates.arrow")
        self._ends.write(self.folder / "ends.arrow")
        candidates = digest(*(self.folder / f"{name}.arrow" for name in ("queries", "documents", "candidates")))
        (self.folder / "columns").mkdir()
        for name, file in self._columns.items():
            write_column(file, self.folder / "columns" / f"{name}.arrow", self.names[name], candidates, made[name])
        if order is not None:
            write_run(self.folder / "run.trec", run, order)
        if qrels:
            with (self.folder / "qrels.trec").open("w", encoding="utf-8") as judged:
                for query, grades in qrels.items():
                    judged.writelines(f"{query} 0 {document} {grade}\n" for document, grade in grades.items())
        manifest = {
            "version": VERSION,
            "rerank": __version__,
            "collection": dict(collection),
            "retriever": dict(retriever),
            "order": order,
            "judgments": "grades" if by_grades else "qrels.trec" if qrels else None,
            "counts": dict(counts),
            "columns": list(self.names),
            "candidates": candidates,
        }
        write_json(self.folder / MANIFEST, manifest)


def memory_store(
    name: str,
    tables: Mapping[str, pa.Table],
    lengths: Array,
    documents: Array,
    grades: Array,
    columns: Mapping[str, Column],
    order: str | None = None,
    qrels: Qrels | None = None,
    by_grades: bool = False,
    added: Array | None = None,
) -> Store:
    """Make a store in memory: tables of queries and documents, and the candidates of lists of these lengths."""
    ends, added = np.cumsum(lengths), np.zeros(len(lengths)) if added is None else added
    rows = {"query": np.repeat(np.arange(len(lengths)), lengths), "document": documents, "grade": grades}
    made = dict(tables)
    for table, schema, arrays in (("candidates", CANDIDATES, rows), ("ends", ENDS, {"end": ends, "added": added})):
        typed = {field.name: arrays[field.name].astype(field.type.to_pandas_dtype()) for field in schema}
        made[table] = pa.table(typed, schema=schema)
    manifest = {
        "collection": {"name": name, "fingerprint": ""},
        "retriever": {},
        "order": order,
        "judgments": "grades" if by_grades else None if qrels is None else "qrels.trec",
    }
    return Store(manifest, tables=made, columns=columns, qrels=qrels)
