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
    """Return everything but the per-query values as JSON, in ``rows`` those of :meth:`Table.to_dataframe`.

    NaN is null.
    """
    content = {
        "qrels": table.qrels or None,
        "queries": len(table.first.queries),
        "empty": table.first.empty,
        "queries_without_relevant": table.first.lacking,
        "caption": " ".join(table.caption()),
        "paths": table.paths,
        "missing_queries": {name: scored.missing for name, scored in table.tables.items()},
        "unjudged": table.unjudged,
        "baseline": table.baseline,
        "tests": table.tests,
        "correction": table.correction,
        "comparisons": table.comparisons,
        "level": LEVEL,
        "seed": SEED,
        "rows": table.to_dataframe().to_dict("records"),
        "parts": list(map(asdict, table.parts)),
    }
    return json.dumps(without_nan(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def without_nan(value: Any) -> Any:
    """Replace numbers that are not finite with None, at any depth."""
    if isinstance(value, dict):
        return {key: without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(without_nan, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(table: Table) -> str:
    """Return a line per run and measure, see :meth:`Table.to_dataframe`, and per share of unjudged documents."""
    rows = [(name, f"unjudged@{k}", share) for name, shares in table.unjudged.items() for k, share in shares.items()]
    unjudged = pd.DataFrame(rows, columns=["run", "measure", "mean"]).assign(queries=len(table.first.queries))
    text: str = pd.concat([table.to_dataframe(), unjudged]).to_csv(index=False)
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
                file.write(json.dumps(without_nan(row), ensure_ascii=False) + "\n")
        else:
            frame.to_csv(file, sep="\t" if suffix == ".tsv" else ",", index=False)
