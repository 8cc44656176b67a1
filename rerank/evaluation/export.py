"""Write a comparison to files: tables, JSON at full precision, and per-query values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from rerank.errors import UserError
from rerank.evaluation.significance import LEVEL, SEED
from rerank.evaluation.table import Table


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


def to_lines(table: Table) -> str:
    """Return a JSON object per run and query."""
    rows = _per_query(table).to_dict("records")
    return "".join(json.dumps(without_nan(row), ensure_ascii=False) + "\n" for row in rows)


def _per_query(table: Table) -> pd.DataFrame:
    """Tabulate a row per run and query, a column per measure; NaN for values left out by ``drop``."""
    frames = [scored.to_dataframe().assign(run=name) for name, scored in table.tables.items()]
    return pd.concat(frames)[["run", "query_id", *table.measures]]


FORMATS: dict[str, dict[str, Callable[[Table], str]]] = {
    "table": {".md": Table.markdown, ".tex": Table.latex, ".csv": to_csv, ".txt": Table.text},
    "per_query": {
        ".tsv": lambda table: str(_per_query(table).to_csv(sep="\t", index=False)),
        ".csv": lambda table: str(_per_query(table).to_csv(index=False)),
        ".jsonl": to_lines,
    },
}
"""Formats of the outputs of ``rerank evaluate``, by the suffix of the file."""


def format_of(path: str | Path, output: str) -> Callable[[Table], str]:
    """Return the function that formats an output (``table``, ``per_query``) for a file.

    Raises:
        UserError: an unknown suffix.
    """
    formats = FORMATS[output]
    if (suffix := Path(path).suffix) not in formats:
        raise UserError(f"{path}: cannot tell the format; the name must end in {', '.join(formats)}")
    return formats[suffix]
