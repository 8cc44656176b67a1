"""What an experiment will do: its cells, checked before anything is trained, and their ids."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rerank.errors import UserError, nearest
from rerank.evaluation.measures import parse_measures
from rerank.experiments.cells import Cell, Group, Point, file_name
from rerank.experiments.config import ExperimentConfig, Method, first_stage_names, folds_of
from rerank.lists.data import Splits
from rerank.settings.configs import Settings, assign, merged
from rerank.settings.ranges import check_arguments, check_value
from rerank.storage.files import check_folder
from rerank.storage.identity import canonical, id_of
from rerank.training.config import TrainConfig
from rerank.training.configuration import configured, data_of
from rerank.training.ids import Identity, config_identity, data_identity, measured_hashes, taught_by, training_identity


class ExperimentPlan:
    """What an experiment will do."""

    def __init__(self, config: ExperimentConfig) -> None:
        self.config = config
        self.output = Path(config.output)
        self.cells = self.output / "cells"
        check_folder(self.output)
        files = self.output.iterdir() if self.output.is_dir() else ()
        if not self.cells.is_dir() and any(not file.name.startswith(".") for file in files):
            raise UserError(f"output: {self.output} exists and is not an experiment's folder; name another one")
        self._defaults = {field.name: field.default for field in fields(TrainConfig)}
        check_config(config, self._defaults)
        self.folds = folds_of(config)
        self.groups = [Group(*of) for of in itertools.product(config.methods, self.folds, config.seeds)]

    def cell(self, group: Group, point: Point) -> Cell:
        settings = merged(self.config.base, self.config.methods[group.method].set)
        for key, value in sorted(point.items(), key=lambda item: item[0].count(".")):  # a class before its arguments
            assign(settings, key, value)
        if group.fold is not None:
            assign(settings, "data.fold", group.fold)
        settings |= {"seed": group.seed, "test": False}
        return Cell(group, point, self.folder(group), settings, self.validated(settings)[0])

    def points(self, group: Group) -> list[Point]:
        """Every combination of the values that its method searches; without a key it is one point."""
        space = self.config.methods[group.method].search
        return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]

    def validated(self, settings: Settings) -> list[str]:
        """What a training configuration measures on validation lists, the monitor first."""
        given = self._defaults | settings
        return [str(measure) for measure in parse_measures(f"{given['monitor']} {given['measures']}")]

    def folder(self, group: Group) -> Path:
        fold = "all" if group.fold is None else f"fold-{file_name(str(group.fold))}"
        return self.cells / file_name(group.method) / fold / f"seed-{group.seed}"


OURS = ("output", "seed", "test")
"""Keys of a training that the experiment sets."""


def check_config(config: ExperimentConfig, known: Mapping[str, Any]) -> None:
    """Raise a UserError for what cannot be; ``known`` are the keys of a training configuration."""
    check_arguments(ExperimentConfig, vars(config))
    if odd := [name for name in config.methods if not isinstance(name, str)]:
        raise UserError(f"methods: {odd[0]!r} is no text to YAML; write it in quotes")
    for name, method in config.methods.items():
        check_value(f"methods.{name}", method, Method)
        check_arguments(Method, vars(method), f"methods.{name}")
    parse_measures(config.measures)
    if not config.methods:
        raise UserError("methods: at least one is needed")
    for name, values in (("folds", config.folds), ("seeds", config.seeds)):
        if values is not None and (not values or len({str(value) for value in values}) < len(values)):
            raise UserError(f"{name}: {values!r} name at least one, and each only once")
    if config.engine == "local" and (config.num_cpus, config.num_gpus) != (1, 0):
        raise UserError("num_cpus, num_gpus: are for engine: ray; this machine's are shared out among jobs")
    if config.num_gpus > 1 and config.num_gpus % 1:
        raise UserError(f"num_gpus: {config.num_gpus:g}; several GPUs are whole ones, and a share is below 1")
    rows = [*config.methods, *first_stage_names(config)[:1]]
    check_methods("baseline", [config.baseline] if config.baseline is not None else [], rows)
    if taken := {*first_stage_names(config)} & {*config.methods}:
        raise UserError(f"methods: {min(taken)!r} is the name of another row; rename it, or set first_stage: hide")
    _check_keys("base", config.base, known)
    folders: dict[str, str] = {}
    for name, method in config.methods.items():
        _check_keys(f"methods.{name}.set", method.set, known)
        _check_keys(f"methods.{name}.search", method.search, known)
        if config.folds is not None and (fold := {"data.fold", "data.init_args.fold"} & {*method.set, *method.search}):
            raise UserError(f"methods.{name}: {fold.pop()} is set by the experiment, see folds")
        if "monitor" in method.search:
            raise UserError(f"methods.{name}.search.monitor: is what chooses among the others; set it")
        for key, values in method.search.items():
            if not isinstance(values, list) or not values:
                shown = f"must be a list of values, such as [1, 3], not {values!r}"
                raise UserError(f"methods.{name}.search.{key}: {shown}")
        if (other := folders.setdefault(file_name(name), name)) != name:
            raise UserError(f"methods: {other!r} and {name!r} would share a folder; rename one")
    if config.published is not None:
        count = len(parse_measures(config.measures))
        check_methods("published.rows", config.published.rows, config.methods)
        for name, row in config.published.rows.items():
            if len(row) != count:
                raise UserError(f"published.rows.{name}: has {len(row)} numbers, the table {count} measures")


def check_methods(where: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise a UserError for a name that is no method's."""
    for name in names:
        if name not in known:
            raise UserError(f"{where}: no method {name!r}{nearest(name, known)}")


def _check_keys(where: str, settings: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for key in settings:
        name = key.split(".")[0]
        if name in OURS:
            raise UserError(f"{where}.{key}: is set by the experiment" + (", see seeds" if name == "seed" else ""))
        if name not in known:
            raise UserError(f"{where}.{key}: training has no key {name!r}{nearest(name, known)}")


@dataclass(frozen=True)
class Known:
    """What is known of some cells' lists; ``test`` has hashes of what measuring reads, None without test lists."""

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
            hashes = None if splits.test is None else measured_hashes(splits.test, columns)
            ordered = splits.test is not None and splits.test.store.order is not None
            self._data[key] = Known(data_identity(splits, columns, targets), hashes, ordered)
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
