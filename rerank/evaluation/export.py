"""A comparison as people meet it, and in files for machines, at full precision: JSON, CSV, and per-query values."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rerank.errors import UserError
from rerank.evaluation import render
from rerank.evaluation.compare import Comparison
from rerank.evaluation.significance import LEVEL, SEED
from rerank.storage.locks import written

if TYPE_CHECKING:
    import pandas as pd

TABLE_SUFFIXES = (".md", ".tex", ".csv", ".txt")
PER_QUERY_SUFFIXES = (".tsv", ".csv", ".jsonl")
REPORT_SUFFIXES = (".html", ".htm")


@dataclass(frozen=True, repr=False)
class Table(Comparison):
    """A comparison that shows itself.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> rerank.evaluate(lists, {"ours": [0.9, 0.1, 0.2, 0.8]}, measures="nDCG@10", baseline="bm25")
    Table(bm25, ours: nDCG@10; 2 queries, against bm25)
    """

    def __str__(self) -> str:
        return render.on_screen(self)

    def __repr__(self) -> str:
        against = f", against {self.baseline}" if self.baseline else ""
        shown = f"{', '.join(self.tables)}: {', '.join(self.measures)}; {len(self.first.queries)} queries{against}"
        return f"Table({shown})"

    def _repr_html_(self) -> str:
        return render.html(self)

    def to_dataframe(self) -> pd.DataFrame:
        """A row per run and measure: ``mean`` and, under a baseline, the difference with all that was tested of it."""
        import pandas as pd

        names = columns(self)
        rows = [dict(zip(names, row, strict=False)) for run in self.tables for row in rows_of(self, run)]
        return pd.DataFrame(rows, columns=names).drop(columns=[] if self.differences else names[4:])


def to_json(comparison: Comparison) -> str:
    """All of a comparison but the per-query values; what is not a number is null."""
    table = comparison.first
    runs = {}
    for name, scored in comparison.tables.items():
        runs[name] = {
            "path": comparison.paths.get(name),
            "missing_queries": list(scored.missing),
            "measures": {measure: finite(mean) for measure, mean in scored.mean.items()},
            "unjudged": {str(depth): asdict(top) for depth, top in comparison.unjudged.get(name, {}).items()},
        }
    differences = [
        {
            "run": name,
            "measure": measure,
            "difference": finite(found.mean),
            "interval": [finite(bound) for bound in found.interval],
            "cohens_d": finite(found.effect),
            "wins": found.wins,
            "ties": found.ties,
            "losses": found.losses,
            "p": {test: finite(p) for test, p in found.p.items()},
            "p_corrected": {test: finite(p) for test, p in found.corrected.items()},
        }
        for (name, measure), found in comparison.differences.items()
    ]
    lacking = dict(zip(comparison.measures, table.without_relevant.sum(axis=1).tolist(), strict=True))
    content = {
        "qrels": comparison.qrels or None,
        "queries": len(table.queries),
        "empty": table.empty,
        "queries_without_relevant": lacking,
        "caption": " ".join(render.caption(comparison, render.LETTERS)),
        "runs": runs,
        "baseline": comparison.baseline,
        "tests": list(comparison.tests),
        "correction": comparison.correction,
        "comparisons": dict.fromkeys(comparison.tests, comparison.comparisons),
        "level": LEVEL,
        "seed": SEED,
        "differences": differences,
        "parts": [{key: _plain(value) for key, value in asdict(part).items()} for part in comparison.parts],
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [finite(bound) for bound in value]
    return finite(value) if isinstance(value, float) else value


def to_csv(comparison: Comparison) -> str:
    """One line per run and measure: mean, queries in it, and the difference from the baseline with its p-values.

    Then a line per run and depth, ``unjudged@k``: the share of the documents in the top ``k`` without a judgment.
    """
    rows: list[list[Any]] = [columns(comparison)]
    for name in comparison.tables:
        rows += rows_of(comparison, name)
        for depth, top in comparison.unjudged.get(name, {}).items():
            share = top.count / top.retrieved if top.retrieved else None
            rows.append([name, f"unjudged@{depth}", share, len(comparison.first.queries)])
    return _separated([row + [None] * (len(rows[0]) - len(row)) for row in rows], ",")


COLUMNS = ("run", "measure", "mean", "queries", "difference", "low", "high", "cohens_d", "wins", "ties", "losses")
"""What is said of a run and a measure, before the p-values."""


def columns(comparison: Comparison) -> list[str]:
    """:data:`COLUMNS`, then each test's p-value as it is and corrected."""
    return [*COLUMNS, *(f"p_{test}{suffix}" for test in comparison.tests for suffix in ("", "_corrected"))]


def rows_of(comparison: Comparison, run: str) -> list[list[Any]]:
    """A row per measure; it ends after :data:`COLUMNS`' ``queries`` where there is no difference to tell of."""
    table, rows = comparison.tables[run], []
    for measure, mean in table.mean.items():
        row: list[Any] = [run, measure, finite(mean), np.count_nonzero(~np.isnan(table[measure]))]
        if found := comparison.differences.get((run, measure)):
            row += [*map(finite, (found.mean, *found.interval, found.effect)), found.wins, found.ties, found.losses]
            row += [finite(p[test]) for test in comparison.tests for p in (found.p, found.corrected)]
        rows.append(row)
    return rows


def check_suffix(path: str | Path, suffixes: tuple[str, ...]) -> str:
    """The path's suffix; a UserError where it is none of these. Meant to be called before any work is done."""
    suffix = Path(path).suffix
    if suffix not in suffixes:
        raise UserError(f"{path}: cannot tell the format; the name must end in {', '.join(suffixes)}")
    return suffix


def write_json(comparison: Comparison, path: str | Path) -> None:
    """Write :func:`to_json`, whole or not at all."""
    with written(path) as file:
        file.write(to_json(comparison))


def write_table(comparison: Comparison, path: str | Path) -> None:
    """Write the table by the file's suffix: ``.md``, ``.tex``, ``.csv`` or ``.txt``."""
    formats = dict(zip(TABLE_SUFFIXES, (render.markdown, render.latex, to_csv, render.text), strict=True))
    content = formats[check_suffix(path, TABLE_SUFFIXES)](comparison)
    with written(path) as file:
        file.write(content)


def write_per_query(comparison: Comparison, path: str | Path) -> None:
    """Write every run's value for every query by the file's suffix: ``.tsv``, ``.csv`` or ``.jsonl``.

    One line per run and query, one column per measure; a value that the policy ``drop`` left out is empty (null).
    """
    suffix = check_suffix(path, PER_QUERY_SUFFIXES)
    header = ["run", "query_id", *comparison.measures]
    rows = [
        [name, query, *map(finite, values)]
        for name, table in comparison.tables.items()
        for query, values in zip(table.queries, table.values.T.tolist(), strict=True)
    ]
    with written(path) as file:
        if suffix == ".jsonl":
            for row in rows:
                file.write(json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False) + "\n")
        else:
            file.write(_separated([header, *rows], "\t" if suffix == ".tsv" else ","))


def _separated(rows: list[list[Any]], delimiter: str) -> str:
    text = io.StringIO()
    safe = ([_no_formula(cell) for cell in row] for row in rows)
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(safe)
    return text.getvalue()


def _no_formula(cell: Any) -> Any:
    """A name that a spreadsheet would compute (``=1+1``) gets an apostrophe in front, which it takes for text."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def finite(value: float | None) -> float | None:
    """A number as JSON holds it; None for NaN and infinity."""
    return float(value) if value is not None and math.isfinite(value) else None
