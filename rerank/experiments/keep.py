"""The results of an experiment in one small file: kept in a repository, they resume it on another machine.

A cell is finished by its id, its ``measures.json`` and its values per query. These files, and nothing else, go into a
compressed file of JSON lines and come out of it byte by byte; models, rankings and logs are not kept.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

from rerank.errors import NotFoundError, UserError, one_line
from rerank.experiments.cells import Cell, Group, Outcome
from rerank.storage.files import atomic_file, read_json, remove_leftovers, write_json
from rerank.storage.locks import exclusive_lock
from rerank.training.run_folder import IDENTITY, MEASURES, PROVENANCE, read_provenance, write_provenance

FROM_PROVENANCE = ("seconds", "python", "packages", "hardware")
"""What is kept of how a training came about: no paths, commands or times of day."""

Key = tuple[str, str | None, int]
"""Method, fold (as text) and seed."""


@dataclass(frozen=True)
class KeptFile:
    """A file that is kept."""

    method: str
    fold: str | None
    seed: int
    path: str
    content: Any

    @property
    def key(self) -> Key:
        return self.method, self.fold, self.seed


def key_of(group: Group) -> Key:
    """A group as kept files name it."""
    return group.method, None if group.fold is None else str(group.fold), group.seed


def collect(output: Path, trained: Iterable[Cell], outcomes: Sequence[Outcome]) -> list[KeptFile]:
    """The files to keep, as they are on disk."""
    files: dict[str, KeptFile] = {}

    def add(group: Group, path: Path, content: Any) -> None:
        name = path.relative_to(output).as_posix()
        files[name] = KeptFile(*key_of(group), name, content)

    kept = [cell for cell in trained if (cell.folder / MEASURES).is_file()]  # the others are trained again for a model
    for cell in [*kept, *(outcome.measured for outcome in outcomes if outcome.measured.again)]:
        add(cell.group, cell.folder / MEASURES, read_json(cell.folder / MEASURES))
        if starts := read_provenance(cell.folder):
            start = {name: starts[-1][name] for name in FROM_PROVENANCE if name in starts[-1]}
            add(cell.group, cell.folder / PROVENANCE, [start])
    for outcome in outcomes:
        if outcome.file is not None:
            add(outcome.group, outcome.file, read_json(outcome.file))
    return list(files.values())


def write_kept(path: str | Path, files: Iterable[KeptFile]) -> None:
    """Write kept files, a line of JSON each, in the order of their paths."""
    lines = [vars(file) for file in sorted(files, key=lambda file: file.path)]
    with atomic_file(path) as temporary:
        temporary.write_bytes(lzma.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))


def read_kept(path: str | Path) -> list[KeptFile]:
    """What `write_kept` wrote. Flipped bits show by the compression's checksum."""
    if not Path(path).is_file():
        raise NotFoundError(f"{path}: no such file; `keep: {path}` in an experiment's configuration makes it")
    try:
        with lzma.open(path) as file:
            lines = [line for line in map(json.loads, file) if "lacking" not in line]  # a first line of before
        return [KeptFile(*(line[each.name] for each in fields(KeptFile))) for line in lines]
    except (lzma.LZMAError, EOFError, KeyError, TypeError, ValueError, RecursionError) as error:
        problem = f"not the kept cells of an experiment, or damaged ({one_line(error)})"
        raise UserError(f"{path}: {problem}; take it from the repository again, or remove it") from error


def update_kept(path: str | Path, files: Sequence[KeptFile], planned: Iterable[Key], through: bool) -> None:
    """Write kept files, beside those of other parts of the experiment (other seeds, other methods) that are there."""
    before = read_kept(path) if Path(path).is_file() else []
    replaced = {file.key for file in files} | (set(planned) if through else set())
    write_kept(path, [*files, *(file for file in before if file.key not in replaced)])


def restore(path: str | Path, output: Path) -> int:
    """Write the files that are kept to an experiment's folder; what is there already stays.

    A cell whose training was interrupted there is left as it is, and resumes: beside measures of a finished training,
    its best model so far would pass for the one that was measured.
    """
    cells: dict[Path, list[KeptFile]] = {}
    for file in read_kept(path):
        place = PurePosixPath(file.path)
        if place.is_absolute() or place.parts[0] != "cells" or ".." in place.parts:
            raise UserError(f"{path}: names a file outside an experiment's cells ({file.path})")
        cells.setdefault(output / place.parent, []).append(file)
    return sum(_restore_cell(folder, files) for folder, files in cells.items())


def _restore_cell(folder: Path, files: Sequence[KeptFile]) -> int:
    """Write what a cell's folder lacks, and clear away what a killed process left there; returns how many files."""
    targets = {folder / PurePosixPath(file.path).name: file.content for file in files}
    if (folder / IDENTITY).exists() and not (folder / MEASURES).exists():
        return 0
    if all(target.exists() for target in targets):
        return 0
    with exclusive_lock(folder, wait=True):  # other parts of the experiment may restore it, too
        remove_leftovers(folder)
        lacking = {target: content for target, content in targets.items() if not target.exists()}
        for target, content in lacking.items():
            if isinstance(content, dict):
                write_json(target, content)
            else:
                write_provenance(folder, content)
    return len(lacking)
