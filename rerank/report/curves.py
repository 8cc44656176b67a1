"""Curves of a report: precision over recall, and what training logged, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rerank.losses
from rerank.collections.records import read_json_objects
from rerank.errors import UserError
from rerank.evaluation.measures import Empty, Evaluator, Qrels
from rerank.losses.direct import DirectMetric
from rerank.measures.names import parse
from rerank.report.charts import Chart, Series
from rerank.retrieval.runs import Run
from rerank.settings.configs import read_config

RECALLS = [i / 10 for i in range(11)]
NAMES = {"train": "training lists", "validation": "validation lists", "test": "test lists"}
BINS = 40
"""Points of a curve of the loss of single steps; each is a mean."""
LARGEST = 1e300
"""Beyond it no chart has an axis."""


def precision_recall(runs: Mapping[str, Run], qrels: Qrels, empty: Empty = "0", rel: int = 1) -> Chart:
    """Interpolated precision at eleven recalls (ir-measures' ``IPrec@R``), the mean over queries, a line per run."""
    relevant = "" if rel == 1 else f"(rel={rel})"
    evaluator = Evaluator(qrels, [f"IPrec{relevant}@{recall}" for recall in RECALLS], empty)
    lines = [Series(name, RECALLS, list(evaluator(run, name).mean.values())) for name, run in runs.items()]
    title = "Precision over recall" + (f", relevant from grade {rel}" if relevant else "")
    return Chart(title, "recall", "interpolated precision", lines, (0.0, 1.0))


def training_charts(folder: str | Path) -> list[Chart]:
    """The charts of a run folder, from its ``metrics.jsonl``.

    Where the loss is a relaxed measure, one minus it is drawn with the exact one (Yu 2020, Figure 2) if training logged
    that: the same gain and cut-off. The lists are not the same, which the lines' names say. Otherwise each has a chart
    of its own. What training logged of the ranks' fidelity makes one more.
    """
    folder = Path(folder)
    steps, epochs = read_metrics(folder)
    if not steps and not epochs:
        return []
    config = _read_config(folder)
    exact = _exact_name(config, epochs)
    relaxed = _relaxed_measure(config.get("loss"))
    per_epoch = epochs[0]["step"] / epochs[0]["epoch"] if epochs else 1.0
    loss = _loss(steps, epochs, per_epoch)
    measured = [
        Series(
            f"{exact}, {NAMES[split]}",
            *_columns([(line["epoch"], line[split][exact]) for line in epochs if exact in line.get(split, {})]),
        )
        for split in NAMES
    ]
    charts = []
    if relaxed is None:
        charts.append(Chart("Training loss", "epoch", "loss", [loss]))
        charts.append(Chart(f"Exact {exact}", "epoch", exact, measured))
    else:
        line = Series(f"relaxed {relaxed}, training lists as sampled", loss.x, [1 - value for value in loss.y])
        if _same_measure(relaxed, exact):
            charts.append(Chart(f"Relaxed and exact {exact}", "epoch", exact, [line, *measured]))
        else:  # other gains or another cut-off: side by side they would look like a gap of the relaxation
            charts.append(Chart(f"Relaxed {relaxed}", "epoch", relaxed, [line]))
            charts.append(Chart(f"Exact {exact}", "epoch", exact, measured))
    names = list(dict.fromkeys(name for line in epochs for name in line.get("fidelity", {})))
    fidelity = [
        Series(
            name.replace("_", " "),
            *_columns([(line["epoch"], line["fidelity"][name]) for line in epochs if name in line.get("fidelity", {})]),
        )
        for name in names
    ]
    error = [line for line in fidelity if line.name == "rank error"]
    charts.append(Chart("Rank error of the relaxation", "epoch", "ranks", error))
    others = [line for line in fidelity if line.name != "rank error"]
    charts.append(Chart("Fidelity of the relaxation", "epoch", "share", others))
    return [chart for chart in charts if chart.series]


def read_metrics(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The lines of ``metrics.jsonl``: those of steps, and those of epochs; without an epoch, the step stands for it."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        raise UserError(f"{folder}: not a run folder (no metrics.jsonl)")
    steps, epochs = [], []
    for number, line in read_json_objects(path, '{"step": 1, "loss": 0.5}'):
        if "validation" in line or "mean_loss" in line:
            epochs.append(_checked({"epoch": line.get("step")} | line, f"{path}:{number}"))
        elif "loss" in line:
            steps.append(_checked(line, f"{path}:{number}"))
    return steps, epochs


def _checked(line: dict[str, Any], where: str) -> dict[str, Any]:
    """A line, if it holds numbers where the charts need some."""
    for key in ("step", "epoch", "loss", "mean_loss"):
        if key in line and (type(line[key]) not in (int, float) or not abs(line[key]) < LARGEST):
            raise UserError(f"{where}: {key} {str(line[key])[:50]!r}; expected a number, as training logs it")
    if "step" not in line or line.get("epoch", 1) == 0:
        raise UserError(f"{where}: no step, or an epoch 0; expected a line as training logs it")
    for key in ("train", "validation", "test", "fidelity"):
        values = line.get(key, {})
        if not isinstance(values, dict) or not all(type(value) in (int, float) for value in values.values()):
            raise UserError(f"{where}: {key} {str(values)[:50]!r}; expected measures and their values")
    return line


def _same_measure(relaxed: str, exact: str) -> bool:
    """Whether the loss's measure is the one that was logged: gain, cut-off and lowest relevant grade alike."""
    try:
        return parse(relaxed) == parse(exact)
    except UserError:
        return relaxed == exact


def _loss(steps: list[dict[str, Any]], epochs: list[dict[str, Any]], per_epoch: float) -> Series:
    if not steps:
        return Series("loss", *_columns([(line["epoch"], line["mean_loss"]) for line in epochs if "mean_loss" in line]))
    parts = np.array_split(np.array([(line["step"], line["loss"]) for line in steps]), min(BINS, len(steps)))
    means = [part.mean(axis=0) for part in parts]
    return Series("loss", [round(step / per_epoch, 4) for step, _ in means], [float(value) for _, value in means])


def _columns(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in pairs], [y for _, y in pairs]


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.yaml"
    if not path.is_file():
        raise UserError(f"{folder}: not a run folder (no config.yaml)")
    return read_config(path)


def _exact_name(config: Mapping[str, Any], epochs: list[dict[str, Any]]) -> str:
    """The loss's own measure where training logged its exact value, else the monitor, else what there is."""
    logged = [*epochs[0].get("validation", {})] if epochs else []
    wanted = _relaxed_measure(config.get("loss")), config.get("monitor")
    return next((name for name in wanted if name is not None and name in logged), logged[0] if logged else "measure")


def _relaxed_measure(loss: Any) -> str | None:
    """The measure that a loss relaxes, from its configuration; None for other losses."""
    path = loss.get("class_path", "") if isinstance(loss, dict) else ""
    kind = getattr(rerank.losses, path.rpartition(".")[2], None)
    if not (isinstance(kind, type) and issubclass(kind, DirectMetric)):
        return None
    return str(loss.get("init_args", {}).get("measure", "measure"))
