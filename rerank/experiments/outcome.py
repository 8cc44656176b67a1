"""What came out of the cells: the chosen points, their measures, their values per query."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rerank.evaluation.measures import Empty, PerQuery, parse_measures
from rerank.experiments.cells import Cell, Group
from rerank.files import atomic_write

QUERIES = "test-queries.json"
"""In a run folder: the test measures of every query."""


@dataclass(frozen=True)
class Outcome:
    """A method on a fold with a seed.

    Attributes:
        cell: the cell that validation chose.
        measured: the cell whose model was measured: the same, or its second training.
        tried: how many points of the search were trained.
        validation: its validation measures, by name.
        test: its test measures per query.
        seconds: what the training took, the second one included.
    """

    cell: Cell
    measured: Cell
    tried: int
    validation: dict[str, float]
    test: PerQuery
    seconds: float

    @property
    def group(self) -> Group:
        """Its method, fold and seed."""
        return self.cell.group


@dataclass(frozen=True)
class Failure:
    """A cell that could not be trained or measured, with the last line of its log."""

    cell: Cell
    message: str


def write_queries(path: Path, table: PerQuery) -> None:
    """Write values per query."""
    content: dict[str, Any] = {
        "measures": [str(measure) for measure in table.measures],
        "empty": table.empty,
        "queries": table.queries,
        "missing": table.missing,
        "values": [[None if np.isnan(value) else value for value in row] for row in table.values.tolist()],
        "without_relevant": table.without_relevant.tolist(),
    }
    with atomic_write(path) as file:
        json.dump(content, file)


def read_queries(path: Path, measures: str, empty: Empty) -> PerQuery | None:
    """Values that :func:`write_queries` wrote; None where they are not there, or in other measures."""
    if not path.is_file():
        return None
    content = json.loads(path.read_text())
    parsed = tuple(parse_measures(measures))
    if (content["measures"], content["empty"]) != ([str(measure) for measure in parsed], empty):
        return None
    return PerQuery(
        measures=parsed,
        queries=tuple(content["queries"]),
        values=np.array(content["values"], dtype=np.float64),
        missing=tuple(content["missing"]),
        without_relevant=np.array(content["without_relevant"], dtype=bool),
        empty=content["empty"],
    )
