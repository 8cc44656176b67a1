"""The results of an experiment in one small file: kept in a repository, they resume it on another machine.

A cell is finished by its id, its ``measures.json`` and its values per query. These files, and nothing else, go into a
Parquet file and come out of it byte by byte; models, rankings and logs are not kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from rerank.errors import NotFoundError, UserError, one_line
from rerank.experiments.cells import Cell, Group
from rerank.storage.files import atomic_file, atomic_write
from rerank.storage.hashes import read_sealed, sealed_text, write_sealed
from rerank.storage.locks import clear_within, held, tidied
from rerank.training.provenance import PROVENANCE, read_provenance
from rerank.training.run_folder import IDENTITY, MEASURES

if TYPE_CHECKING:
    import pyarrow as pa

    from rerank.experiments.outcome import Outcome

log = logging.getLogger("rerank")

TOLD = ("seconds", "python", "packages", "hardware")
"""What is kept of how a training came about: no paths, commands or times of day."""

MATRICES = ("values", "without_relevant")
"""Keys of a measurement that have a row per measure and query, in place of being written as JSON."""

LACKING = "lacking"
"""Key of a kept file's schema: the methods, folds and seeds that were planned and have no measurement yet."""

Key = tuple[str, str | None, int]
"""Method, fold (as text) and seed."""


@dataclass(frozen=True)
class Kept:
    """A file that is kept.

    Attributes:
        method: the row of the table that it belongs to.
        fold: its fold as text; None without folds.
        seed: its seed.
        path: where it is in the experiment's folder.
        content: what it holds, without the seal.
        validation: of ``measures.json``, the value that validation chooses by; None elsewhere.
    """

    method: str
    fold: str | None
    seed: int
    path: str
    content: Any
    validation: float | None = None

    @property
    def key(self) -> Key:
        """Whose file it is."""
        return self.method, self.fold, self.seed

    @property
    def measured(self) -> bool:
        """Whether it has values per query."""
        return PurePosixPath(self.path).name.startswith("test-")


def key_of(group: Group) -> Key:
    """A group as kept files name it."""
    return group.method, None if group.fold is None else str(group.fold), group.seed


def collect(output: Path, trained: Iterable[tuple[Cell, dict[str, Any]]], outcomes: Iterable[Outcome]) -> list[Kept]:
    """The files to keep, as they are on disk."""
    found: dict[str, Kept] = {}

    def add(group: Group, path: Path, content: Any, validation: float | None = None) -> None:
        name = path.relative_to(output).as_posix()
        found[name] = Kept(*key_of(group), name, content, validation)

    def add_training(cell: Cell, validation: float | None) -> None:
        add(cell.group, cell.folder / MEASURES, read_sealed(cell.folder / MEASURES), validation)
        if starts := read_provenance(cell.folder):
            told = {name: starts[-1][name] for name in TOLD if name in starts[-1]}
            add(cell.group, cell.folder / PROVENANCE, [told])

    for cell, measures in trained:
        if not (cell.folder / MEASURES).is_file():
            continue  # it is trained again, for its model
        add_training(cell, measures.get("validation", {}).get(cell.select))
    for outcome in outcomes:
        if outcome.measured.again:
            add_training(outcome.measured, None)
        if outcome.file is not None:
            add(outcome.group, outcome.file, read_sealed(outcome.file))
    return list(found.values())


def write_kept(path: str | Path, files: Iterable[Kept], lacking: Iterable[Key] = ()) -> None:
    """Write kept files: a row for each file, followed by a row per measure and query where it has values.

    The same files give the same bytes, in whatever order they come. Columns: ``path``, ``method``, ``fold``, ``seed``;
    on the first row of a file ``content`` (JSON), ``sha256`` (the file's own seal) and ``validation`` (what validation
    chooses by); on the rows of values ``measure``, ``query_id``, ``value`` and ``without_relevant``.

    Args:
        path: the file.
        files: what to keep.
        lacking: what was planned and is not among them, or not measured; said in the file's schema.
    """
    import pyarrow.parquet as pq

    table = _table(sorted(files, key=lambda file: file.path))
    if left := sorted(lacking, key=str):
        table = table.replace_schema_metadata({LACKING: json.dumps(left)})
    with atomic_file(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", compression_level=9, write_page_checksum=True)


def read_kept(path: str | Path) -> list[Kept]:
    """What `write_kept` wrote.

    Raises:
        UserError: there is no such file, it is something else, or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not Path(path).is_file():
        raise NotFoundError(f"{path}: no such file; `keep: {path}` in an experiment's configuration makes it")
    try:
        table = pq.read_table(path, page_checksum_verification=True, partitioning=None)
        names = list(table.column_names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last of names that are no UTF-8
        raise UserError(f"{path}: damaged, or no Parquet file ({one_line(error)})") from error
    if names != _schema().names:
        raise UserError(f"{path}: not the kept cells of an experiment (columns {', '.join(names)})")
    try:
        return list(_files(path, table.cast(_schema())))
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError, RecursionError, pa.ArrowException) as error:
        raise UserError(f"{path}: damaged ({one_line(error)}); take it from the repository again") from error


def read_lacking(path: str | Path) -> list[Key]:
    """What was planned and has no measurement in a file of kept cells."""
    import pyarrow.parquet as pq

    metadata = pq.read_schema(path).metadata or {}
    return [(method, fold, seed) for method, fold, seed in json.loads(metadata.get(LACKING.encode(), b"[]"))]


def still_lacking(path: str | Path, files: Iterable[Kept], planned: Iterable[Key]) -> set[Key]:
    """What this part of an experiment, and those that ``path`` has already, planned and ``files`` do not have."""
    before = read_lacking(path) if Path(path).is_file() else []
    return {*before, *planned} - {file.key for file in files if file.measured}


def restore(path: str | Path, output: Path) -> int:
    """Write the files that are kept to an experiment's folder; what is there already stays.

    A cell whose training was interrupted there is left as it is, and resumes: beside measures of a finished training,
    its best model so far would pass for the one that was measured.

    Returns:
        How many files were written.

    Raises:
        UserError: the file is damaged.
    """
    cells: dict[Path, list[Kept]] = {}
    for file in read_kept(path):
        place = PurePosixPath(file.path)
        if place.is_absolute() or place.parts[0] != "cells" or ".." in place.parts:
            raise UserError(f"{path}: names a file outside an experiment's cells ({file.path})")
        cells.setdefault(output / place.parent, []).append(file)
    return sum(_restore_cell(folder, files) for folder, files in cells.items())


def _restore_cell(folder: Path, files: Sequence[Kept]) -> int:
    """Write what a cell's folder lacks, and clear away what a killed process left there; returns how many files."""
    targets = {folder / PurePosixPath(file.path).name: file.content for file in files}
    if (folder / IDENTITY).exists() and not (folder / MEASURES).exists():
        return 0
    if all(target.exists() for target in targets):
        tidied(folder)
        return 0
    with held(folder, "rerank experiment", wait=True):  # other parts of the experiment may restore it, too
        clear_within(folder)
        lacking = {target: content for target, content in targets.items() if not target.exists()}
        for target, content in lacking.items():
            if isinstance(content, dict):
                write_sealed(target, content)
            else:
                with atomic_write(target) as opened:
                    json.dump(content, opened, indent=2)
                    opened.write("\n")
    return len(lacking)


def merge(path: str | Path, files: Sequence[Kept], planned: Iterable[Key]) -> list[Kept]:
    """Kept files with those of another part of the experiment (other seeds, other methods) that ``path`` holds.

    Args:
        path: a file of kept files that may not exist.
        files: the files to keep.
        planned: whose files ``files`` has; theirs in ``path`` are replaced.
    """
    if not Path(path).is_file():
        return list(files)
    replaced = {*planned, *(file.key for file in files)}
    return [*files, *(file for file in read_kept(path) if file.key not in replaced)]


def _schema() -> pa.Schema:
    import pyarrow as pa

    words = ("path", "method", "fold", "content", "sha256", "measure", "query_id")
    kinds = dict.fromkeys(words, pa.string()) | {"seed": pa.int64(), "without_relevant": pa.bool_()}
    order = ["path", "method", "fold", "seed", "content", "sha256", "validation"]
    order += ["measure", "query_id", "value", "without_relevant"]
    return pa.schema([(name, kinds.get(name, pa.float64())) for name in order])


def _table(files: Sequence[Kept]) -> pa.Table:
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in _schema().names}
    for file in files:
        measures, queries, content = [], [], file.content
        if file.measured:
            measures, queries = content["measures"], content["queries"]
            content = {name: None if name in MATRICES else value for name, value in content.items()}
            content["queries"] = None
        rows = len(measures) * len(queries)
        sealed = isinstance(file.content, dict)
        for name in ("path", "method", "fold", "seed"):
            columns[name] += [getattr(file, name)] * (rows + 1)
        for name, value in (
            ("content", json.dumps(content)),
            ("sha256", sealed_text(file.content)[1] if sealed else None),
            ("validation", file.validation),
        ):
            columns[name] += [value, *[None] * rows]
        columns["measure"] += [None, *(measure for measure in measures for _ in queries)]
        columns["query_id"] += [None, *(query for _ in measures for query in queries)]
        columns["value"] += [None, *(value for row in file.content["values"] for value in row)] if rows else [None]
        lacking = [value for row in file.content["without_relevant"] for value in row] if rows else []
        columns["without_relevant"] += [None, *lacking]
    return pa.table(columns, schema=_schema())


def _files(path: str | Path, table: pa.Table) -> Iterable[Kept]:
    columns = {name: table[name].to_pylist() for name in table.column_names}
    firsts = [i for i, content in enumerate(columns["content"]) if content is not None]
    for start, end in pairwise([*firsts, table.num_rows]):
        content = json.loads(columns["content"][start])
        if end > start + 1:
            count = end - start - 1
            queries = columns["query_id"][start + 1 : start + 1 + count // len(content["measures"])]
            content["queries"] = queries
            for key, column in zip(MATRICES, ("value", "without_relevant"), strict=True):
                flat = columns[column][start + 1 : end]
                content[key] = [flat[i : i + len(queries)] for i in range(0, count, len(queries))]
        given = {name: columns[name][start] for name in ("method", "fold", "seed", "path", "validation")}
        expected = columns["sha256"][start]
        if expected is not None and sealed_text(content)[1] != expected:
            raise UserError(f"{path}: damaged at {given['path']}; take it from the repository again, or remove it")
        yield Kept(**given, content=content)
