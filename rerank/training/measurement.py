"""What is kept of test lists: the measures of every query in a file named by what was measured, and the rankings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import UserError
from rerank.evaluation.measures import PerQuery, parse_measures
from rerank.retrieval.runs import Run, read_run, write_run
from rerank.storage.files import digest, read_json, write_json
from rerank.storage.identity import id_of
from rerank.training.ids import file_of

START = "start.json"
"""In a run folder: what the model was worth before its first step, query by query, sealed."""

OTHERS = ("with_first_stage", "first_stage", "baseline", "start", "ranker")
"""What is kept of a model on test lists beside its own values."""


def write_start(folder: Path, tables: Mapping[str, PerQuery]) -> None:
    """Write the values of every query before the first step."""
    write_json(folder / START, {name: _as_json(table) for name, table in tables.items()})


def read_start(folder: Path) -> dict[str, PerQuery]:
    """What `write_start` wrote; empty where nothing was measured before the first step."""
    if not (folder / START).is_file():
        return {}
    return {name: _from_json(content) for name, content in read_json(folder / START).items()}


def write_measurement(
    folder: Path, identity: Mapping[str, Any], table: PerQuery, others: Mapping[str, Any] | None = None
) -> None:
    """Write the values of every query, and of the :data:`OTHERS` what was found."""
    name = id_of(identity)
    write_json(folder / file_of(name), {"id": name, **_as_json(table), **(others or {})})


def read_measurement(folder: Path, identity: Mapping[str, Any]) -> tuple[PerQuery, dict[str, Any]] | None:
    """What `write_measurement` wrote; None where this was not measured yet."""
    name = id_of(identity)
    path = folder / file_of(name)
    if not path.is_file():
        return None
    content = read_json(path)
    if content["id"] != name:
        raise UserError(f"{path}: holds another measurement ({content['id']}); remove the file to measure again")
    return _from_json(content), {key: content[key] for key in OTHERS if key in content}


def _as_json(table: PerQuery) -> dict[str, Any]:
    return {
        "measures": [str(measure) for measure in table.measures],
        "empty": table.empty,
        "queries": list(table.queries),
        "missing": list(table.missing),
        "values": [[None if np.isnan(value) else value for value in row] for row in table.values.tolist()],
        "without_relevant": table.without_relevant.tolist(),
    }


def _from_json(content: Mapping[str, Any]) -> PerQuery:
    return PerQuery(
        measures=tuple(parse_measures(" ".join(content["measures"]))),
        queries=tuple(content["queries"]),
        values=np.array(content["values"], dtype=np.float64),
        missing=tuple(content["missing"]),
        without_relevant=np.array(content["without_relevant"], dtype=bool),
        empty=content["empty"],
    )


def write_test_run(folder: Path, identity: Mapping[str, Any], run: Run, tag: str = "rerank") -> None:
    """Write ``test.trec``, and beside it, sealed, of what it is."""
    write_run(folder / "test.trec", run, tag=tag)
    write_json(folder / "test.json", {"id": id_of(identity), "run": digest(folder / "test.trec")})


def kept_test_run(folder: Path, identity: Mapping[str, Any]) -> Run | None:
    """What `write_test_run` wrote; None where it is not there, is of something else, or is not what was written."""
    path, seal = folder / "test.trec", folder / "test.json"
    if not (path.is_file() and seal.is_file()):
        return None
    same = read_json(seal) == {"id": id_of(identity), "run": digest(path)}
    return read_run(path) if same else None
