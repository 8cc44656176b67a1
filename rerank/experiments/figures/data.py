"""The numbers of an experiment's pictures, and whether it can have those that are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from rerank.errors import UserError, nearest
from rerank.evaluation.measures import parse_measures
from rerank.experiments.cells import Cell, Group, Outcome, file_name, shown
from rerank.experiments.config import Figure, first_stage_names
from rerank.experiments.plan import ExperimentPlan, check_methods
from rerank.experiments.summary import over_folds

NAMES = ("methods", "measures")
"""What the lines of a search can be, besides the values of a key."""


@dataclass(frozen=True)
class Line:
    """A line of a search."""

    label: str
    x: list[Any]  # values of the key on the horizontal axis, at which every fold and seed came out
    mean: list[float]
    width: list[float]  # what the experiment's ``spread`` says of each mean; NaN for a single number


@dataclass(frozen=True)
class Curve:
    """What was logged at the end of every epoch, or after every tree, from the first on."""

    what: str  # loss, training or validation
    unit: str  # epoch or tree
    runs: list[np.ndarray]

    @property
    def mean(self) -> np.ndarray:
        """Mean over folds and seeds, as far as all of them go."""
        shortest = min(map(len, self.runs))
        return np.mean([run[:shortest] for run in self.runs], axis=0)


def search_lines(plan: ExperimentPlan, figure: Figure, trained: Iterable[tuple[Cell, Mapping[str, Any]]]) -> list[Line]:
    """The lines of a ``search``: over the values of a key the validation measures of what is chosen with each."""
    key, everything = figure.x or "", list(trained)
    lines = []
    for method in figure.methods or list(plan.config.methods):
        space = plan.config.methods[method].search
        whole = sum(group.method == method for group in plan.groups)
        for fixed in [{}] if figure.lines in NAMES else [{figure.lines: value} for value in space[figure.lines]]:
            places = sorted(space[key]) if is_numeric(space[key]) else space[key]
            chosen = [(x, _chosen(everything, method, {**fixed, key: x})) for x in places]
            complete = [(x, groups) for x, groups in chosen if len(groups) == whole]
            for measure in measures_of(plan, figure):
                points = [_over_folds(groups, measure) for _, groups in complete]
                label = {"methods": method, "measures": measure}.get(figure.lines) or label_of(fixed[figure.lines])
                mean, *widths = ([point[i] for point in points] for i in range(3))
                lines.append(Line(label, [x for x, _ in complete], mean, widths[plan.config.spread == "interval"]))
    return lines


def _chosen(
    trained: Iterable[tuple[Cell, Mapping[str, Any]]], method: str, point: Mapping[str, Any]
) -> dict[Group, Mapping[str, float]]:
    """By fold and seed, the validation measures of the best cell of a method that has these values."""
    best: dict[Group, Mapping[str, float]] = {}
    for cell, found in trained:
        if cell.group.method != method or any(cell.point[key] != value for key, value in point.items()):
            continue
        values = found.get("validation")  # none without validation lists
        if values and (cell.group not in best or values[cell.monitor] > best[cell.group][cell.monitor]):
            best[cell.group] = values
    return best


def curves(plan: ExperimentPlan, figure: Figure, outcomes: Mapping[Group, Outcome]) -> dict[str, list[Curve]]:
    """The curves of the chosen cells, by method: mean loss, monitor on training (trees) and validation lists.

    They are read from ``metrics.jsonl``. There is none over test lists: these are measured once, with the epoch or the
    number of trees that validation chose; a curve over them would be looking at them again and again.
    """
    drawn: dict[str, list[Curve]] = {}
    for method in figure.methods or list(plan.config.methods):
        cells = [outcome.cell for group, outcome in outcomes.items() if group.method == method]
        logs = list(map(_epochs, cells))
        if not logs or not all(logs):  # of a cell that was trained elsewhere, its measures may be all that is here
            continue
        monitor = cells[0].monitor
        unit = "epoch" if "mean_loss" in logs[0][0] else "tree"
        found = {
            "loss": [[line.get("mean_loss", line.get("loss")) for line in log] for log in logs],
            "training": [[line.get("train", {}).get(monitor) for line in log] for log in logs],
            "validation": [[line.get("validation", {}).get(monitor) for line in log] for log in logs],
        }
        drawn[method] = [
            Curve(what, unit, [np.array(run, dtype=np.float64) for run in runs])
            for what, runs in found.items()
            if all(value is not None for run in runs for value in run)
        ]
    return drawn


def measures_of(plan: ExperimentPlan, figure: Figure) -> list[str]:
    """The measures that a picture shows."""
    if figure.measures is not None:
        return [str(measure) for measure in parse_measures(figure.measures)]
    if figure.kind == "methods":
        return [str(measure) for measure in parse_measures(plan.config.measures)]
    return [plan.cell(plan.groups[0], {}).monitor]


def check_figures(plan: ExperimentPlan) -> None:
    """See that every picture can be drawn, before anything is trained."""
    names: dict[str, str] = {}
    for name, figure in plan.config.figures.items():
        if (other := names.setdefault(file_name(name), name)) != name:
            raise UserError(f"figures: {other!r} and {name!r} would share a file; rename one")
        _check(plan, f"figures.{name}", figure)
    if names and find_spec("matplotlib") is None:
        raise UserError("figures: needs matplotlib; pip install 'rerank-direct[demo]', or --figures={}")


def _check(plan: ExperimentPlan, where: str, figure: Figure) -> None:
    known = list(plan.config.methods)
    if figure.kind == "methods":
        known += [*plan.config.ensembles, *first_stage_names(plan.config)]
    check_methods(f"{where}.methods", figure.methods or [], known)
    measures = measures_of(plan, figure)
    if figure.kind == "curves" and figure.measures is not None:
        raise UserError(f"{where}.measures: curves show the monitor, {measures_of(plan, Figure('curves'))[0]}")
    if figure.kind == "methods":
        _among(f"{where}.measures", measures, list(map(str, parse_measures(plan.config.measures))), "measures")
    if figure.kind != "search":
        if figure.x is not None:
            raise UserError(f"{where}.x: only a search has one")
        return
    methods = figure.methods or list(plan.config.methods)
    if figure.x is None:
        raise UserError(f"{where}.x: a search needs one, a dotted key that methods search")
    for what, key in (("x", figure.x), ("lines", figure.lines)):
        for method in methods if key not in NAMES else []:
            space = plan.config.methods[method].search
            if key not in space:
                raise UserError(f"{where}.{what}: {method} does not search {key!r}{nearest(key, space)}")
    for what, several in (("methods", methods), ("measures", measures)):
        if figure.lines != what and len(several) > 1:
            raise UserError(f"{where}.{what}: one, not {len(several)}, unless lines: {what}")
    for method in methods:
        group = next(group for group in plan.groups if group.method == method)
        _among(f"{where}.measures", measures, plan.validated(plan.cell(group, {}).settings), "base.measures")


def _among(where: str, measures: Sequence[str], known: Sequence[str], key: str) -> None:
    for measure in measures:
        if measure not in known:
            raise UserError(f"{where}: {measure} is not among {', '.join(known)}; add it to {key}")


def _over_folds(found: Mapping[Group, Mapping[str, float]], measure: str) -> tuple[float, float, float]:
    folds = list(dict.fromkeys(group.fold for group in found))
    numbers = [np.array([values[measure] for group, values in found.items() if group.fold == fold]) for fold in folds]
    return over_folds(numbers, len(folds))


def label_of(value: Any) -> str:
    """A value as an axis shows it."""
    return f"{value:g}" if isinstance(value, float) else shown(value)


def is_numeric(values: Iterable[Any]) -> bool:
    """Whether all are numbers."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _epochs(cell: Cell) -> list[dict[str, Any]]:
    """What a run logged at the end of every epoch, or after every tree; nothing where its log is not here."""
    log = cell.folder / "metrics.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    return [line for line in map(json.loads, lines) if "epoch" in line]
