"""The files of an experiment for machines and people: JSON, Parquet, per-query values, tables."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rerank.experiments import table
from rerank.experiments.outcome import Failure, Outcome
from rerank.experiments.run import Experiment
from rerank.experiments.summary import Summary, Value
from rerank.files import atomic_write


def write_results(experiment: Experiment, summary: Summary) -> None:
    """Write ``results.json``, ``results.parquet``, ``queries.parquet``, ``table.md`` and ``table.tex``."""
    folder, outcomes = experiment.plan.output, experiment.outcomes
    with atomic_write(folder / "results.json") as file:
        json.dump(as_dict(experiment, summary), file, indent=1, ensure_ascii=False, allow_nan=False)
        file.write("\n")
    _write_parquet(folder / "results.parquet", [_flat(outcome) for outcome in outcomes.values()])
    _write_parquet(folder / "queries.parquet", [row for outcome in outcomes.values() for row in _queries(outcome)])
    with atomic_write(folder / "table.md") as file:
        file.write(table.markdown(summary, outcomes, experiment.failures))
    with atomic_write(folder / "table.tex") as file:
        file.write(table.latex(summary))


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
                "values": {measure: _value(value) for measure, value in row.values.items()},
            }
            for method, row in summary.rows.items()
        },
        "cells": [_cell(outcome) for outcome in experiment.outcomes.values()],
        "failed": [_failed(failure) for failure in experiment.failures],
    }


def _value(value: Value) -> dict[str, float | None]:
    numbers = vars(value) | {"distance": value.distance}
    return {name: None if number is None or not math.isfinite(number) else number for name, number in numbers.items()}


def _cell(outcome: Outcome) -> dict[str, Any]:
    group = outcome.group
    return {
        "method": group.method,
        "fold": group.fold,
        "seed": group.seed,
        "point": outcome.cell.point,
        "tried": outcome.tried,
        "folder": str(outcome.cell.folder),
        "seconds": outcome.seconds,
        "validation": outcome.validation,
        "test": {name: None if math.isnan(mean) else mean for name, mean in outcome.test.mean.items()},
    }


def _flat(outcome: Outcome) -> dict[str, Any]:
    cell = _cell(outcome)
    splits = {f"{split}/{name}": mean for split in ("validation", "test") for name, mean in cell.pop(split).items()}
    fold = None if cell["fold"] is None else str(cell["fold"])
    return cell | {"fold": fold, "point": json.dumps(cell["point"])} | splits


def _failed(failure: Failure) -> dict[str, Any]:
    group = failure.cell.group
    where = {"method": group.method, "fold": group.fold, "seed": group.seed, "point": failure.cell.point}
    return where | {"message": failure.message, "log": str(failure.cell.folder / "log.txt")}


def _queries(outcome: Outcome) -> list[dict[str, Any]]:
    group, test = outcome.group, outcome.test
    fold = None if group.fold is None else str(group.fold)
    common = {"method": group.method, "fold": fold, "seed": group.seed}
    names = [str(measure) for measure in test.measures]
    return [
        common | {"query_id": query} | {n: None if math.isnan(v) else v for n, v in zip(names, values, strict=True)}
        for query, values in zip(test.queries, test.values.T.tolist(), strict=True)
    ]


def _write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows to a Parquet file, whole or not at all; a column is there if any row has it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = list(dict.fromkeys(name for row in rows for name in row))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in columns}), temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
