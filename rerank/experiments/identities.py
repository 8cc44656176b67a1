"""Ids of cells. Configurations are read once per method and point, lists once per data and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rerank.experiments.cells import Cell
from rerank.lists.data import Splits
from rerank.storage.identity import canonical, id_of
from rerank.training.configuration import configured, data_of
from rerank.training.ids import Identity, config_identity, data_identity, measured_hashes, taught_by, training_identity


@dataclass(frozen=True)
class Known:
    """What is known of the lists of some cells.

    Attributes:
        test: hashes of what measuring reads; None where there are no test lists.
        first_stage: whether the test lists have a first stage, as lists of texts do.
    """

    training: Identity
    test: dict[str, str] | None
    first_stage: bool


class Identities:
    """Ids of cells; each is known from settings and data alone, wherever the experiment's folder is."""

    def __init__(self) -> None:
        self._configs: dict[str, tuple[Identity, Sequence[str], Sequence[str]]] = {}
        self._data: dict[str, Known] = {}

    def named(self, cell: Cell) -> Cell:
        config = self._config(cell)[0] | {"seed": cell.settings["seed"]}
        return replace(cell, id=id_of(training_identity(config, self.data(cell).training)))

    def data(self, cell: Cell) -> Known:
        _, columns, targets = self._config(cell)
        key = canonical([cell.settings["data"], cell.settings["seed"], columns, targets])
        if key not in self._data:
            splits = splits_of(cell.settings)
            test = splits.test
            self._data[key] = Known(
                training=data_identity(splits, columns, targets),
                test=None if test is None else measured_hashes(test, columns),
                first_stage=test is not None and test.store.order is not None,
            )
        return self._data[key]

    def _config(self, cell: Cell) -> tuple[Identity, Sequence[str], Sequence[str]]:
        """What counts of a cell's configuration, data and seed apart; columns its model reads and is trained on."""
        key = canonical({name: value for name, value in cell.settings.items() if name not in ("data", "seed")})
        if key not in self._configs:
            config = configured(cell.settings)
            self._configs[key] = config_identity(config), list(config.model.columns), taught_by(config)
        return self._configs[key]


def splits_of(settings: Mapping[str, Any]) -> Splits:
    """The lists that the settings of a cell name."""
    return data_of(settings).splits(settings["seed"])
