"""Write a comparison to files: tables, JSON at full precision, and per-query values."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from rerank.errors import UserError
from rerank.evaluation.significance import LEVEL, SEED
from rerank.evaluation.table import Table
from rerank.storage.files import atomic_write

TABLE_SUFFIXES = (".md", ".tex", ".csv", ".txt")
PER_QUERY_SUFFIXES = (".tsv", ".csv", ".jsonl")
REPORT_SUFFIXES = (".html", ".htm")


def to_json(table: Table) -> str:
    """Return everything but the per-query values as JSON; NaN is null."""
    runs = {
        name: {
            "path": table.paths.get(name),
            "missing_queries": scored.missing,
            "measures": scored.mean,
            "unjudged": {str(depth): asdict(top) for depth, top in table.unjudged.get(name, {}).items()},
        }
        for name, scored in table.tables.items()
    }
    lacking = dict(zip(table.measures, table.first.without_relevant.sum(axis=1).tolist(), strict=True))
    content = {
        "qrels": table.qrels or None,
        "queries": len(table.first.queries),
        "empty": table.first.empty,
        "queries_without_relevant": lacking,
        "caption": " ".join(table.caption()),
        "runs": runs,
        "baseline": table.baseline,
        "tests": table.tests,
        "correction": table.correction,
        "comparisons": dict.fromkeys(table.tests, table.comparisons),
        "level": LEVEL,
        "seed": SEED,
        "differences": [{"run": run, "measure": of} | asdict(one) for (run, of), one in table.differences.items()],
        "parts": list(map(asdict, table.parts)),
    }
    return json.dumps(_without_nan(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _without_nan(value: Any) -> Any:
    """Replace numbers that are not finite with None, at any depth."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_without_nan, value))
    return finite(value) if isinstance(value, float) else value


def finite(value: float | None) -> float | None:
    """Return a number, or None if it is not finite."""
    return float(value) if value is not None and math.isfinite(value) else None


def to_csv(table: Table) -> str:
    """Return a line per run and measure, see :meth:`Table.to_dataframe`, and per share of unjudged documents."""
    count = len(table.first.queries)
    unjudged = [
        {"run": name, "measure": f"unjudged@{depth}", "mean": top.share, "queries": count}
        for name, tops in table.unjudged.items()
        for depth, top in tops.items()
    ]
    text: str = pd.concat([table.to_dataframe(), pd.DataFrame(unjudged)]).to_csv(index=False)
    return text


def check_suffix(path: str | Path, suffixes: tuple[str, ...]) -> str:
    """Return the suffix of a path.

    Raises:
        UserError: if it is not one of these.
    """
    suffix = Path(path).suffix
    if suffix not in suffixes:
        raise UserError(f"{path}: cannot tell the format; the name must end in {', '.join(suffixes)}")
    return suffix


def write_json(table: Table, path: str | Path) -> None:
    """Write :func:`to_json`."""
    with atomic_write(path) as file:
        file.write(to_json(table))


def write_table(table: Table, path: str | Path) -> None:
    """Write the table in the format of the file's suffix: ``.md``, ``.tex``, ``.csv`` or ``.txt``."""
    formats = {".md": Table.markdown, ".tex": Table.latex, ".csv": to_csv, ".txt": Table.text}
    content = formats[check_suffix(path, TABLE_SUFFIXES)](table)
    with atomic_write(path) as file:
        file.write(content)


def write_per_query(table: Table, path: str | Path) -> None:
    """Write a line per run and query, a column per measure, to ``.tsv``, ``.csv`` or ``.jsonl``.

    Values left out by ``drop`` are empty (null).
    """
    suffix = check_suffix(path, PER_QUERY_SUFFIXES)
    frames = [scored.to_dataframe().assign(run=name) for name, scored in table.tables.items()]
    frame = pd.concat(frames)[["run", "query_id", *table.measures]]
    with atomic_write(path) as file:
        if suffix == ".jsonl":
            for row in frame.to_dict("records"):
                file.write(json.dumps(_without_nan(row), ensure_ascii=False) + "\n")
        else:
            frame.to_csv(file, sep="\t" if suffix == ".tsv" else ",", index=False)
