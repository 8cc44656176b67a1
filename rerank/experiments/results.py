"""Files that an experiment writes: JSON, Parquet, tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.evaluation.export import without_nan
from rerank.experiments import table
from rerank.experiments.cells import Cell, Group, Outcome
from rerank.experiments.run import Experiment
from rerank.experiments.summary import Summary
from rerank.storage.files import atomic_file, atomic_write

if TYPE_CHECKING:
    import pandas as pd

Outcomes = Mapping[Group, Outcome]


def write_results(experiment: Experiment, outcomes: Outcomes, summary: Summary) -> None:
    """Write the files of an experiment's folder.

    ``results.json``: everything but the values per query. ``queries.parquet``: the test measures of every query.
    ``table.md`` and ``table.tex``. Paths in them start from the folder.
    """
    folder = experiment.plan.output
    with atomic_write(folder / "results.json") as file:
        content = without_nan(as_dict(experiment, outcomes, summary))
        json.dump(content, file, indent=1, ensure_ascii=False, allow_nan=False)
        file.write("\n")
    with atomic_file(folder / "queries.parquet") as temporary:
        queries_frame(outcomes).to_parquet(temporary, index=False)
    with atomic_write(folder / "table.md") as file:
        file.write(table.markdown(summary, experiment.failures))
    with atomic_write(folder / "table.tex") as file:
        file.write(table.latex(summary))


def results_frame(output: Path, outcomes: Outcomes) -> pd.DataFrame:
    """Tabulate the chosen cells: a row per method, fold and seed."""
    import pandas as pd

    rows = []
    for outcome in outcomes.values():
        row = _outcome(output, outcome)
        for part in ("validation", "test"):
            row |= {f"{part}/{name}": mean for name, mean in row.pop(part).items()}
        rows.append(row)
    return pd.DataFrame(rows)


def queries_frame(outcomes: Outcomes) -> pd.DataFrame:
    """Tabulate the test measures of every query."""
    import pandas as pd

    frames = []
    for outcome in outcomes.values():
        values = outcome.test.to_dataframe()
        values.insert(0, "method", outcome.group.method)
        values.insert(1, "fold", None if outcome.group.fold is None else str(outcome.group.fold))
        values.insert(2, "seed", outcome.group.seed)
        frames.append(values)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def as_dict(experiment: Experiment, outcomes: Outcomes, summary: Summary) -> dict[str, Any]:
    """Collect everything but the values per query at full precision."""
    output = experiment.plan.output
    return {
        "caption": " ".join(table.caption(summary)),
        "measures": summary.measures,
        "test": summary.config.test,
        "correction": summary.config.correction,
        "table": {
            name: {key: of for key, of in vars(row).items() if key != "seeds"} for name, row in summary.rows.items()
        },
        "differences": list(map(vars, summary.compared)),
        "cells": [_outcome(output, outcome) for outcome in outcomes.values()],
        "failed": [
            _where(one.cell) | {"message": one.message, "log": f"{_relative(output, one.cell)}/log.txt"}
            for one in experiment.failures
        ],
    }


def _outcome(output: Path, outcome: Outcome) -> dict[str, Any]:
    return _where(outcome.cell) | {
        "tried": outcome.tried,
        "folder": _relative(output, outcome.cell),
        "seconds": outcome.seconds,
        "validation": outcome.validation,
        "test": outcome.test.mean,
    }


def _where(cell: Cell) -> dict[str, Any]:
    return {"method": cell.group.method, "fold": cell.group.fold, "seed": cell.group.seed, "point": cell.point}


def _relative(output: Path, cell: Cell) -> str:
    return cell.folder.relative_to(output).as_posix()
