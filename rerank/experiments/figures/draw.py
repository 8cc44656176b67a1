"""The pictures of an experiment, drawn with matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rerank.experiments.cells import file_name
from rerank.experiments.config import ExperimentConfig
from rerank.experiments.config import Figure as Wanted
from rerank.experiments.figures.data import Line, curves, is_numeric, label_of, measures_of, search_lines
from rerank.experiments.run import Experiment
from rerank.experiments.summary import Summary
from rerank.experiments.table import over
from rerank.storage.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, which people with any colour vision tell apart."""

MARKERS = "os^Dv<>"
DPI = 150
COLUMNS = 4


def write_figures(experiment: Experiment, summary: Summary) -> list[Path]:
    """Draw the pictures that the experiment's configuration asks for, as PNG files in its folder."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kinds: dict[str, Callable[[Figure, Experiment, Summary, Wanted], str]]
    kinds = {"search": _search, "methods": _methods, "curves": _curves}
    paths = []
    for name, wanted in experiment.plan.config.figures.items():
        figure = Figure(layout="constrained")
        FigureCanvasAgg(figure)
        caption = kinds[wanted.kind](figure, experiment, summary, wanted)
        width = int(figure.get_figwidth() * 15)
        figure.supxlabel(textwrap.fill(f"{data_name(experiment.plan.config)}: {caption}", width), fontsize=8)
        paths.append(experiment.plan.output / f"{file_name(name)}.png")
        with atomic_file(paths[-1]) as temporary:
            figure.savefig(temporary, dpi=DPI, format="png")
    return paths


def data_name(config: ExperimentConfig) -> str:
    """What the data of an experiment is called: the last part of its path."""
    data = config.base.get("data")
    given = data.get("init_args", {}) if isinstance(data, dict) else {}
    paths = [given[key] for key in ("path", "lists", "train") if isinstance(given.get(key), str)]
    return Path(paths[0]).name if paths else Path(config.output).name


def _search(figure: Figure, experiment: Experiment, summary: Summary, wanted: Wanted) -> str:
    plan = experiment.plan
    figure.set_size_inches(6, 4.4)
    axes = figure.subplots()
    lines, measures = search_lines(plan, wanted, experiment.trained), measures_of(plan, wanted)
    values = list(dict.fromkeys(x for line in lines for x in line.x))
    places = values if is_numeric(values) else list(range(len(values)))
    if places and min(places) > 0 and max(places) >= 20 * min(places):
        axes.set_xscale("log")
    axes.set_xticks(places, [label_of(value) for value in values])
    axes.minorticks_off()
    for number, line in enumerate(lines):
        _line(axes, number, len(lines), line, [places[values.index(x)] for x in line.x], places)
    axes.set(xlabel=_last(wanted.x or ""), ylabel=f"validation {measures[0] if len(measures) == 1 else 'measure'}")
    _plain(axes)
    if len(lines) > 1:
        by_key = wanted.lines not in ("methods", "measures")
        title = _last(wanted.lines) if by_key else None
        figure.legend(title=title, loc="outside right upper", frameon=False, fontsize=8)  # bars may fill the axes
    methods = wanted.methods or list(plan.config.methods)
    others = {key for name in methods for key in plan.config.methods[name].search} - {wanted.x, wanted.lines}
    best = f" {', '.join(sorted(map(_last, others)))} chosen on validation by fold and seed." if others else ""
    label = f"{methods[0]}, " if len(methods) == 1 else ""
    return f"{label}validation means over {over(plan.config)}.{best}"


def _line(axes: Axes, number: int, count: int, line: Line, x: list[float], places: list[float]) -> None:
    """Draw one of several lines, each a little beside the others, so that bars do not hide bars."""
    beside = 0.008 * (number - (count - 1) / 2)
    if axes.get_xscale() == "log":
        x = [value * (max(places) / min(places)) ** beside for value in x]
    else:
        x = [value + (max(places) - min(places)) * beside for value in x]
    style: dict[str, Any] = {"color": COLOURS[number % 7], "marker": MARKERS[number % 7], "markersize": 5, "capsize": 2}
    style |= {"linestyle": ("-", "--", ":")[number // 7 % 3], "linewidth": 1.5}
    axes.errorbar(x, line.mean, None if np.isnan(line.width).any() else line.width, label=line.label, **style)


def _methods(figure: Figure, experiment: Experiment, summary: Summary, wanted: Wanted) -> str:
    config, measures = summary.config, measures_of(experiment.plan, wanted)
    methods = [name for name in wanted.methods or summary.rows if name in summary.rows and summary.rows[name].found]
    columns = min(COLUMNS, len(measures))
    rows = -(-len(measures) // columns)
    longest = max(map(len, methods), default=1)
    figure.set_size_inches(0.09 * longest + 2.2 * columns, 0.9 + rows * (0.7 + 0.24 * len(methods)))
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes in panels.flat[len(measures) :]:
        axes.set_axis_off()
    for axes, measure in zip(panels.flat, measures, strict=False):
        best = summary.best(measure)
        for place, method in enumerate(methods):
            value = summary.rows[method].values[measure]
            width = value.error if config.spread == "error" else value.interval
            fill = COLOURS[0] if value.mean >= best - 1e-12 else "white"
            bar = None if np.isnan(width) else width
            axes.errorbar(value.mean, place, xerr=bar, color=COLOURS[0], marker="o", markerfacecolor=fill, capsize=2)
        axes.set_yticks(range(len(methods)), methods, fontsize=8)
        axes.set_ylim(len(methods) - 0.5, -0.5)
        axes.set_xlabel(measure, fontsize=9)
        axes.tick_params(axis="x", labelsize=8)
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="y", color="0.9")
        _plain(axes)
    return f"test means over {over(config)}. Filled: the best."


def _curve(axes: Axes, values: np.ndarray, **style: Any) -> None:
    """Values over 1, 2, …; a dot where there is one only."""
    axes.plot(np.arange(1, len(values) + 1), values, marker="o" if len(values) == 1 else None, **style)


def _curves(figure: Figure, experiment: Experiment, summary: Summary, wanted: Wanted) -> str:
    plan = experiment.plan
    drawn, monitor = curves(plan, wanted, experiment.outcomes), measures_of(plan, wanted)[0]
    columns = max(1, min(COLUMNS, len(drawn)))
    rows = max(1, -(-len(drawn) // columns))
    figure.set_size_inches(1 + 2.7 * columns, 0.8 + 4 * rows)
    panels = figure.subplots(2 * rows, columns, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    for place, (method, several) in enumerate(drawn.items()):
        upper, lower = panels[2 * (place // columns) : 2 * (place // columns) + 2, place % columns]
        upper.set_title(method, fontsize=9)
        for curve in several:
            loss = curve.what == "loss"
            axes, colour = (upper, COLOURS[6]) if loss else (lower, COLOURS[curve.what == "training"])
            axes.set_axis_on()
            for run in curve.runs if len(curve.runs) > 1 else []:
                _curve(axes, run, color=colour, alpha=0.25, linewidth=0.8)
            _curve(axes, curve.mean, color=colour, linewidth=1.8, label=curve.what)
            axes.set_ylabel("training loss" if loss else monitor, fontsize=8)
            axes.set_xlabel(curve.unit, fontsize=8)
            axes.tick_params(labelsize=8)
            axes.locator_params(axis="x", integer=True, nbins=6)
            _plain(axes)
        if sum(curve.what != "loss" for curve in several) > 1:
            lower.legend(frameon=False, fontsize=8)
        if all(curve.what != "loss" for curve in several):
            upper.text(0.5, 0.5, "grown from gradients:\nthere is no loss", ha="center", fontsize=8, color="0.4")
    folds, seeds = len(plan.config.folds or [None]), len(plan.config.seeds)
    runs = f"{folds} fold{'s' if folds > 1 else ''} × {seeds} seed{'s' if seeds > 1 else ''}"
    thin = " Thin: a fold and seed each; thick: their mean, as far as all go." if folds * seeds > 1 else ""
    lacking = [method for method in wanted.methods or plan.config.methods if method not in drawn]
    kept = f" Without {', '.join(lacking)}: their logs are where they were trained." if lacking else ""
    return (
        f"the models that validation chose, {runs}.{thin} {monitor} of networks on validation, of trees on training "
        f"lists too. Test lists are measured once, at the end, and have no curve.{kept}"
    )


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
