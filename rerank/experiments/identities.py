"""Which training each cell is: configurations are read once per method and point, lists once per data and seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rerank.experiments.cells import Cell
from rerank.identity import canonical, id_of
from rerank.lists.data import Splits
from rerank.training.command import configured, data_of
from rerank.training.ids import Identity, config_identity, data_identity, test_hashes, training_identity


@dataclass(frozen=True)
class Known:
    """What is known of the lists of some cells.

    Attributes:
        training: hashes of what training reads.
        test: hashes of what measuring reads; None where there are no test lists.
        first_stage: whether the test lists have a first stage, as lists of texts do.
    """

    training: Identity
    test: dict[str, str] | None
    first_stage: bool


class Identities:
    """Ids of cells; each is known from settings and data alone, wherever the experiment's folder is."""

    def __init__(self) -> None:
        self._configs: dict[str, Identity] = {}
        self._data: dict[str, Known] = {}

    def named(self, cell: Cell) -> Cell:
        """The cell with its id."""
        settings = cell.settings
        key = canonical({name: value for name, value in settings.items() if name not in ("data", "seed")})
        if key not in self._configs:
            self._configs[key] = config_identity(configured(settings))
        config = self._configs[key] | {"seed": settings["seed"]}
        return replace(cell, id=id_of(training_identity(config, self.data(cell).training)))

    def data(self, cell: Cell) -> Known:
        """What the lists of a cell hold."""
        key = canonical([cell.settings["data"], cell.settings["seed"]])
        if key not in self._data:
            splits = splits_of(cell.settings)
            test = splits.test
            self._data[key] = Known(
                training=data_identity(splits),
                test=None if test is None else test_hashes(test),
                first_stage=test is not None and test.store.order is not None,
            )
        return self._data[key]


def splits_of(settings: Mapping[str, Any]) -> Splits:
    """The lists that the settings of a cell name."""
    return data_of(settings).splits(settings["seed"])
