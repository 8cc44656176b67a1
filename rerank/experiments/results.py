"""The files of an experiment for machines and people: JSON, Parquet, per-query values, tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rerank.evaluation.export import finite
from rerank.experiments import table
from rerank.experiments.cells import Cell, Failure, Group, Outcome
from rerank.experiments.plan import ExperimentPlan
from rerank.experiments.planned import PlannedComparison
from rerank.experiments.run import Experiment
from rerank.experiments.summary import Summary
from rerank.storage.files import atomic_file, atomic_write


def write_results(experiment: Experiment, summary: Summary) -> None:
    """Write the files that an experiment's folder holds.

    ``results.json``: everything but the values per query. ``results.parquet``: a row per method, fold and seed.
    ``points.parquet``: a row per trained cell, chosen or not, with its validation measures. ``queries.parquet``: the
    test measures of every query. ``table.md`` and ``table.tex``. Paths in them start from the folder.
    """
    folder, outcomes = experiment.plan.output, experiment.outcomes
    with atomic_write(folder / "results.json") as file:
        json.dump(as_dict(experiment, summary), file, indent=1, ensure_ascii=False, allow_nan=False)
        file.write("\n")
    _write_parquet(folder / "results.parquet", flat_rows(experiment.plan, outcomes))
    chosen = {outcome.cell.folder for outcome in outcomes.values()}
    points = [_point(folder, *trained, trained[0].folder in chosen) for trained in experiment.trained]
    _write_parquet(folder / "points.parquet", points)
    _write_parquet(folder / "queries.parquet", [row for outcome in outcomes.values() for row in _queries(outcome)])
    with atomic_write(folder / "table.md") as file:
        file.write(table.markdown(summary, outcomes, experiment.failures))
    with atomic_write(folder / "table.tex") as file:
        file.write(table.latex(summary))


def flat_rows(plan: ExperimentPlan, outcomes: Mapping[Group, Outcome]) -> list[dict[str, Any]]:
    """A row per method, fold and seed: ``results.parquet``."""
    rows = []
    for outcome in outcomes.values():
        row = _cell(plan.output, outcome)
        parts = ("validation", "start", "test")
        splits = {f"{part}/{name}": mean for part in parts for name, mean in row.pop(part).items()}
        rows.append(_as_text(row) | splits)
    return rows


def as_dict(experiment: Experiment, summary: Summary) -> dict[str, Any]:
    """Everything but the values per query, at full precision; what is not a number is None."""
    return {
        "caption": " ".join(table.caption(summary)),
        "measures": summary.measures,
        "test": summary.config.test,
        "correction": summary.config.correction,
        "comparisons": summary.comparisons,
        "against": summary.against,
        "table": {
            method: {
                "cells": row.found,
                "wanted": row.wanted,
                "values": {name: _finite(vars(of) | {"distance": of.distance}) for name, of in row.values.items()},
            }
            for method, row in summary.rows.items()
        },
        "differences": [_compared(one) for one in summary.compared],
        "cells": [_cell(experiment.plan.output, outcome) for outcome in experiment.outcomes.values()],
        "failed": [_failed(experiment.plan.output, failure) for failure in experiment.failures],
    }


def _finite(numbers: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: finite(number) for name, number in numbers.items()}


def _compared(one: PlannedComparison) -> dict[str, Any]:
    numbers = {"p": one.p, "corrected": one.corrected, "effect": one.effect}
    if one.found is not None:
        low, high = one.found.interval
        numbers |= {"mean": one.found.mean, "low": low, "high": high, "error": one.found.error}
    sides = {"row": one.row, "against": one.against, "measure": one.measure}
    return sides | _finite(numbers) | {"wins/ties/losses": list(one.counts)}


def _cell(output: Path, outcome: Outcome) -> dict[str, Any]:
    return _where(outcome.cell) | {
        "tried": outcome.tried,
        "folder": outcome.cell.folder.relative_to(output).as_posix(),
        "seconds": finite(outcome.seconds),
        "validation": outcome.validation,
        "start": {} if outcome.start is None else {outcome.start.measure: outcome.start.first},
        "test": _finite(outcome.test.mean),
    }


def _point(output: Path, cell: Cell, measures: dict[str, Any], chosen: bool) -> dict[str, Any]:
    validation = {f"validation/{name}": mean for name, mean in measures.get("validation", {}).items()}
    common = {"folder": cell.folder.relative_to(output).as_posix(), "seconds": measures["seconds"], "chosen": chosen}
    return _as_text(_where(cell)) | common | {key: json.dumps(value) for key, value in cell.point.items()} | validation


def _where(cell: Cell) -> dict[str, Any]:
    return {"method": cell.group.method, "fold": cell.group.fold, "seed": cell.group.seed, "point": cell.point}


def _as_text(where: dict[str, Any]) -> dict[str, Any]:
    """What has several types in one column becomes text."""
    fold = None if where["fold"] is None else str(where["fold"])
    return where | {"fold": fold, "point": json.dumps(where["point"])}


def _failed(output: Path, failure: Failure) -> dict[str, Any]:
    log = (failure.cell.folder / "log.txt").relative_to(output).as_posix()
    return _where(failure.cell) | {"message": failure.message, "log": log}


def _queries(outcome: Outcome) -> list[dict[str, Any]]:
    test = outcome.test
    common = _as_text(_where(outcome.cell))
    del common["point"]
    names = [str(measure) for measure in test.measures]
    return [
        common | {"query_id": query} | dict(zip(names, map(finite, values), strict=True))
        for query, values in zip(test.queries, test.values.T.tolist(), strict=True)
    ]


def _write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows to a Parquet file, whole or not at all; a column is there if any row has it."""
    import pyarrow.parquet as pq

    columns = list(dict.fromkeys(name for row in rows for name in row))
    with atomic_file(path) as temporary:
        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in columns}), temporary)
