"""A comparison as people meet it, and in files for machines, at full precision: JSON, CSV, and per-query values."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rerank.errors import UserError
from rerank.evaluation import render
from rerank.evaluation.compare import Comparison
from rerank.evaluation.measure_names import parse_measure
from rerank.evaluation.significance import LEVEL, SEED
from rerank.storage.files import atomic_write

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
        return render.text(self)

    def __repr__(self) -> str:
        against = f", against {self.baseline}" if self.baseline else ""
        shown = f"{', '.join(self.tables)}: {', '.join(self.measures)}; {len(self.first.queries)} queries{against}"
        return f"Table({shown})"

    def _repr_html_(self) -> str:
        return render.html(self)

    def to_dataframe(self) -> pd.DataFrame:
        """A row per run and measure: ``mean`` and, with a baseline, the difference and its tests."""
        return to_dataframe(self)

    def __getitem__(self, key: tuple[str, str]) -> float:
        """The mean of a measure of a run, ``table["ours", "nDCG@10"]``."""
        run, measure = key
        if run not in self.tables:
            raise KeyError(f"no run {run!r}; there are {', '.join(self.tables)}")
        return self.tables[run].mean[str(parse_measure(measure, "measure"))]


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
    """One line per run and measure, see :func:`to_dataframe`; then the shares of unjudged documents."""
    import pandas as pd

    count = len(comparison.first.queries)
    unjudged = [
        {"run": name, "measure": f"unjudged@{depth}", "mean": top.share, "queries": count}
        for name, tops in comparison.unjudged.items()
        for depth, top in tops.items()
    ]
    text: str = pd.concat([to_dataframe(comparison), pd.DataFrame(unjudged)]).to_csv(index=False)
    return text


def to_dataframe(comparison: Comparison) -> pd.DataFrame:
    """A row per run and measure: its mean, number of queries, and the tested difference from the baseline."""
    import pandas as pd

    rows = []
    for run, table in comparison.tables.items():
        for measure, mean in table.mean.items():
            row = {"run": run, "measure": measure, "mean": mean, "queries": int((~np.isnan(table[measure])).sum())}
            if found := comparison.differences.get((run, measure)):
                row |= {"difference": found.mean, "low": found.interval[0], "high": found.interval[1]}
                row |= {"cohens_d": found.effect, "wins": found.wins, "ties": found.ties, "losses": found.losses}
                for test in comparison.tests:
                    row |= {f"p_{test}": found.p[test], f"p_{test}_corrected": found.corrected[test]}
            rows.append(row)
    return pd.DataFrame(rows)


def check_suffix(path: str | Path, suffixes: tuple[str, ...]) -> str:
    """The path's suffix; a UserError where it is none of these. Meant to be called before any work is done."""
    suffix = Path(path).suffix
    if suffix not in suffixes:
        raise UserError(f"{path}: cannot tell the format; the name must end in {', '.join(suffixes)}")
    return suffix


def write_json(comparison: Comparison, path: str | Path) -> None:
    """Write :func:`to_json`, whole or not at all."""
    with atomic_write(path) as file:
        file.write(to_json(comparison))


def write_table(comparison: Comparison, path: str | Path) -> None:
    """Write the table by the file's suffix: ``.md``, ``.tex``, ``.csv`` or ``.txt``."""
    formats = dict(zip(TABLE_SUFFIXES, (render.markdown, render.latex, to_csv, render.text), strict=True))
    content = formats[check_suffix(path, TABLE_SUFFIXES)](comparison)
    with atomic_write(path) as file:
        file.write(content)


def write_per_query(comparison: Comparison, path: str | Path) -> None:
    """Write every run's value for every query by the file's suffix: ``.tsv``, ``.csv`` or ``.jsonl``.

    One line per run and query, one column per measure; a value that the policy ``drop`` left out is empty (null).
    """
    import pandas as pd

    suffix = check_suffix(path, PER_QUERY_SUFFIXES)
    frames = [scored.to_dataframe().assign(run=name) for name, scored in comparison.tables.items()]
    frame = pd.concat(frames)[["run", "query_id", *comparison.measures]]
    with atomic_write(path) as file:
        if suffix == ".jsonl":
            for row in frame.astype(object).where(frame.notna(), None).to_dict("records"):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        else:
            frame.to_csv(file, sep="\t" if suffix == ".tsv" else ",", index=False)


def finite(value: float | None) -> float | None:
    """A number as JSON holds it; None for NaN and infinity."""
    return float(value) if value is not None and math.isfinite(value) else None
