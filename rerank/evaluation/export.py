"""Write a comparison to files: tables, JSON at full precision, and per-query values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
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
        "seen_queries": table.seen,
        "baseline": table.baseline,
        "test": table.test,
        "correction": table.correction,
        "comparisons": len(table.compared),
        "level": LEVEL,
        "seed": SEED,
        "rows": table.to_dataframe().to_dict("records"),
    }
    return json.dumps(without_nan(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def without_nan(value: Any) -> Any:
    """Replace numbers that are not finite with None, at any depth."""
    if isinstance(value, dict):
        return {key: without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(without_nan, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _per_query(table: Table) -> pd.DataFrame:
    """Tabulate a row per run and query, a column per measure; NaN for values left out by ``drop``."""
    frames = [scored.to_dataframe().assign(run=name) for name, scored in table.tables.items()]
    return pd.concat(frames)[["run", "query_id", *table.measures]]


FORMATS: dict[str, dict[str, Callable[[Table], str]]] = {
    "table": {
        ".md": Table.markdown,
        ".tex": Table.latex,
        ".csv": lambda table: str(table.to_dataframe().to_csv(index=False)),
        ".txt": Table.text,
    },
    "per_query": {
        ".tsv": lambda table: str(_per_query(table).to_csv(sep="\t", index=False)),
        ".csv": lambda table: str(_per_query(table).to_csv(index=False)),
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
