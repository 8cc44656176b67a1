"""What a configuration may say, seen before anything is trained."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rerank.errors import UserError, nearest
from rerank.evaluation.measures import parse_measures
from rerank.experiments.config import ExperimentConfig, Method, first_stage_names
from rerank.experiments.planned import best_of, planned_pairs
from rerank.experiments.search import file_name
from rerank.settings.ranges import check_arguments, check_value

OURS = ("output", "seed", "test")
"""Keys of a training that the experiment sets."""


def check_config(config: ExperimentConfig, known: Mapping[str, Any]) -> None:
    """Raise a UserError for what cannot be; ``known`` are the keys of a training configuration."""
    check_arguments(ExperimentConfig, vars(config))
    for name, method in config.methods.items():
        check_value(f"methods.{name}", method, Method)
        check_arguments(Method, vars(method), f"methods.{name}")
    for key in ("ensembles", "groups"):
        for name, members in getattr(config, key).items():
            check_value(f"{key}.{name}", members, list[str])
    parse_measures(config.measures)
    if not config.methods:
        raise UserError("methods: at least one is needed")
    for name, values in (("folds", config.folds), ("seeds", config.seeds)):
        if values is not None and (not values or len({str(value) for value in values}) < len(values)):
            raise UserError(f"{name}: {values!r} name at least one, and each only once")
    if config.keep is not None and not config.keep.endswith(".jsonl.xz"):
        raise UserError(f"keep: {config.keep}: the name must end in .jsonl.xz")
    if config.engine == "local" and (config.num_cpus, config.num_gpus) != (1, 0):
        raise UserError("num_cpus, num_gpus: are for engine: ray; this machine's are shared out among jobs")
    rows = [*config.methods, *first_stage_names(config)[:1]]
    check_methods("baseline", [config.baseline] if config.baseline is not None else [], rows)
    if taken := {*first_stage_names(config)} & {*config.methods, *config.ensembles}:
        raise UserError(f"methods: {min(taken)!r} is the name of another row; rename it, or set first_stage: hide")
    for name, members in config.ensembles.items():
        if name in config.methods:
            raise UserError(f"ensembles.{name}: a method has this name; choose another")
        check_methods(f"ensembles.{name}", members, config.methods)
        if len(members) * len(config.seeds) < 2:
            raise UserError(f"ensembles.{name}: needs two methods, or two seeds")
    if len(config.groups) == 1:
        raise UserError(f"groups: {next(iter(config.groups))!r} alone has nothing to be compared with; name two")
    for name, members in config.groups.items():
        if not members:
            raise UserError(f"groups.{name}: names no method")
        check_methods(f"groups.{name}", members, config.methods)
    _check_primary(config)
    _check_keys("base", config.base, known)
    _check_keys("refit", config.refit, known)
    folders: dict[str, str] = {}
    for name, method in config.methods.items():
        _check_keys(f"methods.{name}.set", method.set, known)
        _check_keys(f"methods.{name}.search", method.search, known)
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


def _check_primary(config: ExperimentConfig) -> None:
    if config.primary is None:
        return
    first, mixed = first_stage_names(config)[:1], first_stage_names(config)[1:]
    rows = [*first, *config.methods, *config.ensembles, *mixed]
    pairs = planned_pairs(rows, config.baseline, config.pairs == "all")
    pairs += itertools.combinations(map(best_of, config.groups), 2)
    known = [[*pair, str(measure)] for measure in parse_measures(config.measures) for pair in pairs]
    if config.primary not in known:
        given = f"; such as {known[0]}" if known else ": there is none without baseline or groups"
        raise UserError(f"primary: {config.primary} is no planned comparison of ROW, AGAINST and MEASURE{given}")


def _check_keys(where: str, settings: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for key in settings:
        name = key.split(".")[0]
        if name in OURS:
            raise UserError(f"{where}.{key}: is set by the experiment" + (", see seeds" if name == "seed" else ""))
        if name not in known:
            raise UserError(f"{where}.{key}: training has no key {name!r}{nearest(name, known)}")
