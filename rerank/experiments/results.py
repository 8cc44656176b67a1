"""Files that an experiment writes: JSON, Parquet, tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.evaluation.export import finite
from rerank.experiments import table
from rerank.experiments.cells import Cell, Group, Outcome
from rerank.experiments.run import Experiment
from rerank.experiments.summary import Comparison, Summary
from rerank.storage.files import atomic_file, atomic_write

if TYPE_CHECKING:
    import pandas as pd

Outcomes = Mapping[Group, Outcome]


def write_results(experiment: Experiment, outcomes: Outcomes, summary: Summary) -> None:
    """Write the files of an experiment's folder.

    ``results.json``: everything but the values per query. ``results.parquet``: a row per method, fold and seed.
    ``points.parquet``: a row per trained cell, chosen or not, with its validation measures. ``queries.parquet``: the
    test measures of every query. ``table.md`` and ``table.tex``. Paths in them start from the folder.
    """
    folder = experiment.plan.output
    with atomic_write(folder / "results.json") as file:
        json.dump(as_dict(experiment, outcomes, summary), file, indent=1, ensure_ascii=False, allow_nan=False)
        file.write("\n")
    frames = {"results": results_frame(folder, outcomes), "points": points_frame(experiment, outcomes)}
    for name, frame in {**frames, "queries": queries_frame(outcomes)}.items():
        with atomic_file(folder / f"{name}.parquet") as temporary:
            frame.to_parquet(temporary, index=False)
    with atomic_write(folder / "table.md") as file:
        file.write(table.markdown(summary, outcomes, experiment.failures))
    with atomic_write(folder / "table.tex") as file:
        file.write(table.latex(summary))


def results_frame(output: Path, outcomes: Outcomes) -> pd.DataFrame:
    """Tabulate the chosen cells: a row per method, fold and seed."""
    import pandas as pd

    rows = []
    for outcome in outcomes.values():
        row = _outcome(output, outcome)
        for part in ("validation", "start", "test"):
            row |= {f"{part}/{name}": mean for name, mean in row.pop(part).items()}
        rows.append(_as_text(row))
    return pd.DataFrame(rows)


def points_frame(experiment: Experiment, outcomes: Outcomes) -> pd.DataFrame:
    """Tabulate the trained cells, with a column per searched key."""
    import pandas as pd

    chosen, rows = {outcome.cell.folder for outcome in outcomes.values()}, []
    for cell in experiment.trained:
        results = cell.results()
        validation = {} if results is None or results.validation is None else results.validation.model.mean
        rows.append(
            _as_text(_where(cell))
            | {"folder": _relative(experiment.plan.output, cell), "seconds": cell.seconds}
            | {"chosen": cell.folder in chosen}
            | {key: json.dumps(value) for key, value in cell.point.items()}
            | {f"validation/{name}": mean for name, mean in validation.items()}
        )
    return pd.DataFrame(rows)


def queries_frame(outcomes: Outcomes) -> pd.DataFrame:
    """Tabulate the test measures of every query."""
    import pandas as pd

    frames = []
    for outcome in outcomes.values():
        group, values = outcome.group, outcome.test.to_dataframe()
        for place, (name, value) in enumerate(
            {"method": group.method, "fold": _text(group.fold), "seed": group.seed}.items()
        ):
            values.insert(place, name, value)
        frames.append(values)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def as_dict(experiment: Experiment, outcomes: Outcomes, summary: Summary) -> dict[str, Any]:
    """Collect everything but the values per query at full precision; None stands for NaN."""
    output = experiment.plan.output
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
        "differences": [_difference(one) for one in summary.compared],
        "cells": [_outcome(output, outcome) for outcome in outcomes.values()],
        "failed": [
            _where(one.cell) | {"message": one.message, "log": f"{_relative(output, one.cell)}/log.txt"}
            for one in experiment.failures
        ],
    }


def _finite(numbers: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: finite(number) for name, number in numbers.items()}


def _difference(one: Comparison) -> dict[str, Any]:
    numbers = {"p": one.p, "corrected": one.corrected, "effect": one.effect}
    if one.found is not None:
        low, high = one.found.interval
        numbers |= {"mean": one.found.mean, "low": low, "high": high, "error": one.found.error}
    sides = {"row": one.row, "against": one.against, "measure": one.measure}
    return sides | _finite(numbers) | {"wins/ties/losses": list(one.counts)}


def _outcome(output: Path, outcome: Outcome) -> dict[str, Any]:
    return _where(outcome.cell) | {
        "tried": outcome.tried,
        "folder": _relative(output, outcome.cell),
        "seconds": finite(outcome.seconds),
        "validation": outcome.validation,
        "start": outcome.start,
        "test": _finite(outcome.test.mean),
    }


def _where(cell: Cell) -> dict[str, Any]:
    return {"method": cell.group.method, "fold": cell.group.fold, "seed": cell.group.seed, "point": cell.point}


def _as_text(row: dict[str, Any]) -> dict[str, Any]:
    """Write values of several types in one column as text."""
    return row | {"fold": _text(row["fold"]), "point": json.dumps(row["point"])}


def _text(fold: int | str | None) -> str | None:
    return None if fold is None else str(fold)


def _relative(output: Path, cell: Cell) -> str:
    return cell.folder.relative_to(output).as_posix()
