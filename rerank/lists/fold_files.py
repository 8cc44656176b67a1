"""Folds that others have made: which query is in which."""

from __future__ import annotations

import json
from itertools import count, takewhile
from pathlib import Path

from rerank.collections import read_queries
from rerank.collections.irdatasets import known_ids
from rerank.errors import UserError
from rerank.storage.files import read_lines

RIGHT = "a JSON list of lists of query ids, a folder with f1.test.run, f2.test.run, … or an ir_datasets id with folds"


def read_folds(source: str) -> list[set[str]]:
    """The query ids of each fold.

    Args:
        source: a JSON list of lists of query ids (Anserini's fold files); a folder with the runs ``f1.test.run``,
            ``f2.test.run``, … of each fold's queries (CEDR's); or an ir_datasets id with ``/fold1``, ``/fold2``, …
            below it, such as ``disks45/nocr/trec-robust-2004``.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        folds = _runs(path)
    elif path.is_file():
        folds = _json(path)
    else:
        known = set(known_ids())
        names = takewhile(known.__contains__, (f"{source}/fold{i}" for i in count(1)))
        folds = [{query.id for query in read_queries(name)} for name in names]
    if not folds:
        raise UserError(f"data.assignment: {source} is not {RIGHT}")
    seen: dict[str, int] = {}
    for number, fold in enumerate(folds, 1):
        for query in sorted(fold):
            if (other := seen.setdefault(query, number)) != number:
                raise UserError(f"{source}: query {query!r} is in folds {other} and {number}; it can be in one only")
    return folds


def _runs(folder: Path) -> list[set[str]]:
    """The queries of each test run. CEDR's validation runs are those of the fold before, which is checked."""
    paths = takewhile(Path.is_file, (folder / f"f{i}.test.run" for i in count(1)))
    folds = [_first_column(path) for path in paths]
    for i in range(len(folds)):
        validation = folder / f"f{i + 1}.valid.run"
        if validation.is_file() and _first_column(validation) != folds[i - 1]:
            raise UserError(f"{validation}: not the queries of the fold before; that is the one validated on here")
    return folds


def _first_column(path: Path) -> set[str]:
    return {line.split(maxsplit=1)[0] for _, line in read_lines(path)}


def _json(path: Path) -> list[set[str]]:
    try:
        folds = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error}); expected {RIGHT}") from error
    if not (isinstance(folds, list) and all(isinstance(fold, list) for fold in folds)):
        raise UserError(f"{path}: not a list of lists; expected {RIGHT}")
    return [{str(query) for query in fold} for fold in folds]
