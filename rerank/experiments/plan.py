"""Plan of an experiment: its trials, checked before anything is trained, and their fingerprints."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rerank.errors import UserError, nearest
from rerank.evaluation.measure_names import parse_measure, parse_measures
from rerank.experiments.config import ExperimentConfig, Method, first_stage_names, folds_of
from rerank.experiments.trials import Group, Point, Trial, file_name, point_name
from rerank.lists.data import Splits
from rerank.lists.view import Lists
from rerank.settings.arguments import check_arguments, fingerprint
from rerank.settings.parser import OURS, merged
from rerank.training.config import TrainConfig
from rerank.training.configuration import configured, data_of
from rerank.training.run_folder import columns_read, measured_hashes, resolve_data, resolve_settings

SHOWN = 12
"""Characters of a fingerprint at the end of a folder's name."""


class ExperimentPlan:
    """Trials of an experiment, by method, fold and seed."""

    def __init__(self, config: ExperimentConfig) -> None:
        self.config = config
        self.output = Path(config.output)
        self.trials = self.output / "trials"
        files = self.output.iterdir() if self.output.is_dir() else ()
        if not self.trials.is_dir() and any(not file.name.startswith(".") for file in files):
            raise UserError(f"output: {self.output} exists and is not an experiment's folder; name another one")
        check_config(config, [field.name for field in fields(TrainConfig)])
        self.inputs = Inputs()
        self.groups = [Group(*of) for of in itertools.product(config.methods, folds_of(config), config.seeds)]

    def trial(self, group: Group, point: Point) -> Trial:
        """Merge the settings of a trial."""
        settings = merged({}, self.config.base)  # makes its dotted keys nested
        settings = merged(settings, self.config.methods[group.method].set)
        settings = merged(settings, point)
        settings = merged(settings, {} if group.fold is None else {"data.fold": group.fold})
        settings |= {"seed": group.seed, "test": False}
        monitor = str(parse_measure(settings.get("monitor", TrainConfig.monitor), "monitor"))
        return Trial(group, point, self.folder(group), settings, monitor)

    def points(self, group: Group) -> list[Point]:
        """List every combination of the values that the method searches; one point if it searches nothing."""
        space = self.config.methods[group.method].search
        return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]

    def check_inputs(self) -> None:
        """Open all lists and models.

        Raises:
            UserError: a missing folder, fold or model, by name.
        """
        for group in self.groups:
            for point in self.points(group):
                trial = self.trial(group, point)
                self.inputs.test(trial)
                self.inputs.settings(trial)

    def folder(self, group: Group) -> Path:
        """Name the folder of a group's trials."""
        fold = "all" if group.fold is None else f"fold-{file_name(str(group.fold))}"
        return self.trials / file_name(group.method) / fold / f"seed-{group.seed}"


def check_config(config: ExperimentConfig, known: Collection[str]) -> None:
    """Raise a UserError for invalid values; ``known`` are the keys of a training configuration."""
    check_arguments(ExperimentConfig, vars(config))
    if not config.methods:
        raise UserError("methods: at least one is needed")
    for name, values in (("folds", config.folds), ("seeds", config.seeds)):
        if values is not None and (not values or len({str(value) for value in values}) < len(values)):
            raise UserError(f"{name}: expected at least one, and each only once, not {values!r}")
    if config.engine == "local" and (config.num_cpus, config.num_gpus) != (1, 0):
        raise UserError("num_cpus, num_gpus: are for engine: ray; this machine's are shared out among jobs")
    rows = [*config.methods, *first_stage_names(config)[:1]]
    if config.baseline is not None and config.baseline not in rows:
        raise UserError(f"baseline: no method {config.baseline!r}{nearest(config.baseline, rows)}")
    tested = config.test, config.correction, config.level
    if config.baseline is None and config.pairs == "baseline" and tested != ("bootstrap", "holm", 0.05):
        raise UserError("test, correction, level: nothing is compared; set baseline: NAME, or pairs: all")
    if taken := {*first_stage_names(config)} & {*config.methods}:
        raise UserError(f"methods: {min(taken)!r} is the name of another row; rename it, or set first_stage: hide")
    _check_keys("base", config.base, known)
    for name, method in config.methods.items():
        check_arguments(Method, vars(method), f"methods.{name}")
        _check_keys(f"methods.{name}.set", method.set, known)
        _check_keys(f"methods.{name}.search", method.search, known)
        if config.folds is not None and (fold := {"data.fold", "data.init_args.fold"} & {*method.set, *method.search}):
            raise UserError(f"methods.{name}: {fold.pop()} is set by the experiment, see folds")
        if "monitor" in method.search:
            raise UserError(f"methods.{name}.search.monitor: cannot be searched, as the search uses it; move it to set")
        for key, values in method.search.items():
            if not isinstance(values, list) or not values:
                shown = f"must be a list of values, such as [1, 3], not {values!r}"
                raise UserError(f"methods.{name}.search.{key}: {shown}")
    measures = parse_measures(config.measures)
    for name, row in config.published.rows.items() if config.published else ():
        if name not in config.methods:
            raise UserError(f"published.rows: no method {name!r}{nearest(name, config.methods)}")
        if len(row) != len(measures):
            raise UserError(f"published.rows.{name}: has {len(row)} numbers, the table {len(measures)} measures")


def _check_keys(where: str, settings: Mapping[str, Any], known: Collection[str]) -> None:
    for key in settings:
        name = key.split(".")[0]
        if name in OURS:
            raise UserError(f"{where}.{key}: is set by the experiment" + (", see seeds" if name == "seed" else ""))
        if name not in known:
            raise UserError(f"{where}.{key}: training has no key {name!r}{nearest(name, known)}")


class Inputs:
    """Lists and models that trials name, and the fingerprints of both; what trials share is read once."""

    def __init__(self) -> None:
        self._settings: dict[str, tuple[tuple[list[str], list[str]], dict[str, Any]]] = {}
        self._splits: dict[str, Splits] = {}
        self._data: dict[str, tuple[dict[str, Any], dict[str, str]]] = {}

    def splits(self, trial: Trial) -> Splits:
        """Open the lists of a trial."""
        key = _key([trial.settings["data"], trial.settings["seed"]])
        if key not in self._splits:
            self._splits[key] = data_of(trial.settings).splits(trial.settings["seed"])
        return self._splits[key]

    def test(self, trial: Trial) -> Lists:
        """Open the test lists of a trial.

        Raises:
            UserError: lists or folds that do not exist, or no test lists.
        """
        if (lists := self.splits(trial).test) is None:
            raise UserError(f"{trial}: the data give no test lists, which an experiment measures on")
        return lists

    def settings(self, trial: Trial) -> tuple[tuple[list[str], list[str]], dict[str, Any]]:
        """Return the columns that a trial reads, and its resolved settings; trials of other data and seed share them.

        The model is built for that, and not kept: an experiment may have many.
        """
        key = _key({name: value for name, value in trial.settings.items() if name not in ("data", "seed")})
        if key not in self._settings:
            config = configured(trial.settings)
            self._settings[key] = columns_read(config), resolve_settings(config)
        return self._settings[key]

    def named(self, trial: Trial) -> Trial:
        """Add the fingerprint, and a folder name that depends on it and on the test lists, but not on their labels."""
        columns, settings = self.settings(trial)
        key = _key([trial.settings["data"], trial.settings["seed"], columns])
        if key not in self._data:
            hashes = measured_hashes(self.test(trial), columns[0]) or {}
            self._data[key] = resolve_data(*columns, self.splits(trial), test=False), {**hashes, "labels": ""}
        data, test = self._data[key]
        found = fingerprint({**settings, "seed": trial.settings["seed"], "data": data})
        name = f"{point_name(trial.point)}-{fingerprint([found, test])[:SHOWN]}"
        return replace(trial, fingerprint=found, folder=trial.folder / name)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
