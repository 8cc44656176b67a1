"""What came out of the cells: the chosen points, their measures, their values per query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rerank.evaluation.measures import PerQuery
from rerank.experiments.cells import Cell, Group
from rerank.retrieval.runs import Run


@dataclass(frozen=True)
class Outcome:
    """A method on a fold with a seed.

    Attributes:
        cell: the cell that validation chose.
        measured: the cell whose model was measured: the same, or its second training.
        tried: how many points of the search were trained.
        validation: its validation measures, by name.
        test: its test measures per query.
        seconds: what the training took, the second one included; NaN where nothing tells.
        run: its rankings of the test lists, read or made again when they are asked for.
        file: where the values per query are.
    """

    cell: Cell
    measured: Cell
    tried: int
    validation: dict[str, float]
    test: PerQuery
    seconds: float
    run: Callable[[], Run] = field(default=dict, compare=False)
    file: Path | None = None

    @property
    def group(self) -> Group:
        """Its method, fold and seed."""
        return self.cell.group


@dataclass(frozen=True)
class Failure:
    """A cell that could not be trained or measured, with the last line of its log."""

    cell: Cell
    message: str
