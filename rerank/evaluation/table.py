"""Comparison of runs in several measures, as numbers and as tables to read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rerank.errors import UserError
from rerank.evaluation import render
from rerank.evaluation.measure_names import parse_measure
from rerank.evaluation.measures import COUNTS, PerQuery
from rerank.evaluation.paired import Comparison
from rerank.evaluation.render import (
    CORRECTED,
    MARK,
    Best,
    Section,
    differences_section,
    gain_sentences,
    number,
    queries_sentence,
)
from rerank.evaluation.significance import ALPHA, LEVEL, ROUNDING, SEED, TEST_NAMES, Correction, Test


@dataclass(frozen=True, repr=False)
class Table:
    """Runs in several measures, compared with a baseline.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> rerank.evaluate(lists, {"ours": [0.9, 0.1, 0.2, 0.8]}, measures="nDCG@10", baseline="bm25")
    Table(bm25, ours: nDCG@10; 2 queries, against bm25)

    Attributes:
        tables: per-query values by run, in the order of the table.
        compared: the other runs against the baseline, in every measure.
        paths: files of the runs.
        ties: by run, the number of documents whose score equals that of the one before them.
        seen: number of queries left out because a document that is relevant to them was trained on.
    """

    tables: dict[str, PerQuery]
    baseline: str | None
    test: Test
    correction: Correction
    compared: list[Comparison]
    paths: dict[str, str] = field(default_factory=dict)
    qrels: str = ""
    ties: dict[str, int] = field(default_factory=dict)
    seen: int = 0

    @property
    def first(self) -> PerQuery:
        """Return the values of the first run; measures, queries and policy are the same in all."""
        return next(iter(self.tables.values()))

    @property
    def differences(self) -> dict[tuple[str, str], Comparison]:
        """Return the comparisons by run and measure."""
        return {(one.run, one.measure): one for one in self.compared}

    @property
    def measures(self) -> tuple[str, ...]:
        return tuple(map(str, self.first.measures))

    def __getitem__(self, key: tuple[str, str]) -> float:
        """Return the mean of a measure of a run, ``table["ours", "nDCG@10"]``."""
        run, measure = key
        if run not in self.tables:
            raise KeyError(f"no run {run!r}; there are {', '.join(self.tables)}")
        return self.tables[run].mean[str(parse_measure(measure, "measure"))]

    def __repr__(self) -> str:
        against = f", against {self.baseline}" if self.baseline else ""
        queries = f"{len(self.first.queries)} queries"
        return f"Table({', '.join(self.tables)}: {', '.join(self.measures)}; {queries}{against})"

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row per run and measure: the mean and, with a baseline, the difference and its tests."""
        rows = []
        for run, table in self.tables.items():
            for measure, mean in table.mean.items():
                row = {"run": run, "measure": measure, "mean": mean, "queries": int((~np.isnan(table[measure])).sum())}
                if found := self.differences.get((run, measure)):
                    low, high = found.interval or (np.nan, np.nan)
                    row |= {"difference": found.difference, "low": low, "high": high, "cohens_d": found.cohens_d}
                    row |= dict(zip(("wins", "ties", "losses"), found.counts, strict=True))
                    row |= {"p": found.p, "p_corrected": found.p_corrected}
                rows.append(row)
        return pd.DataFrame(rows)

    def per_query(self) -> pd.DataFrame:
        """Return a row per run and query, a column per measure; NaN for values left out by ``drop``."""
        frames = [values.to_dataframe().assign(run=name) for name, values in self.tables.items()]
        return pd.concat(frames)[["run", "query_id", *self.measures]]

    def to_json(self) -> str:
        """Return everything but the per-query values as JSON, in ``rows`` those of :meth:`to_dataframe`.

        NaN is null.
        """
        content = {
            "qrels": self.qrels or None,
            "queries": len(self.first.queries),
            "empty": self.first.empty,
            "queries_without_relevant": self.first.lacking,
            "caption": " ".join(self.caption()),
            "paths": self.paths,
            "missing_queries": {name: values.missing for name, values in self.tables.items()},
            "seen_queries": self.seen,
            "baseline": self.baseline,
            "test": self.test,
            "correction": self.correction,
            "comparisons": len(self.compared),
            "level": LEVEL,
            "seed": SEED,
            "rows": self.to_dataframe().to_dict("records"),
        }
        return json.dumps(without_nan(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def sections(self) -> list[Section]:
        """Return the means, and the differences from the baseline."""
        about = [f"{LEVEL:.0%} intervals: bootstrap over queries, not corrected for their number; p is corrected."]
        return [self._means(), *([differences_section(self.compared, about)] if self.compared else [])]

    def text(self) -> str:
        """Render as plain text."""
        return render.text(self.sections())

    __str__ = text

    def markdown(self) -> str:
        """Render as Markdown."""
        return render.markdown(self.sections())

    def latex(self) -> str:
        """Render as LaTeX (package booktabs)."""
        return render.latex(self.sections())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def caption(self) -> list[str]:
        """State the queries, the policy for empty ones, gain, ties, tests and correction."""
        sentences = [queries_sentence(self.first), *gain_sentences(self.first)]
        where = "" if self.first.empty == "0" else " where they have relevant documents"
        for name, run in self.tables.items():
            if run.missing:
                sentences.append(f"{name}: {len(run.missing)} queries without candidates score 0{where}.")
            if ties := self.ties.get(name):
                equal = f"{name}: {ties} documents have the score of the one before"
                sentences.append(f"{equal}; ties are broken by document id, as in trec_eval.")
        if self.seen:
            sentences.append(f"{self.seen} queries with a relevant document that was trained on are left out.")
        if self.compared:
            how = f"{CORRECTED[self.correction]} for {len(self.compared)} comparisons"
            against = f"{MARK}: differs from {self.baseline}, p < {ALPHA}"
            sentences.append(f"{against} by the {TEST_NAMES[self.test]} ({how}).")
        return sentences

    def _means(self) -> Section:
        """Tabulate means: a row per run, a column per measure."""
        means, differences = {name: table.mean for name, table in self.tables.items()}, self.differences
        rows = []
        for name, mean in means.items():
            row = [f"{name} (baseline)" if name == self.baseline else name]
            for measure in self.first.measures:
                value, found = mean[str(measure)], differences.get((name, str(measure)))
                highest = max(other[str(measure)] for other in means.values())
                best = len(means) > 1 and measure.NAME not in COUNTS and value >= highest - ROUNDING
                shown = f"{value:.0f}" if measure.NAME in COUNTS - {"Judged"} else number(value)
                shown += MARK if found and found.p_corrected < ALPHA else ""
                row.append(Best(shown) if best else shown)
            rows.append(row)
        return Section("Measures", ["run", *self.measures], rows, self.caption())


TABLE_FORMATS: dict[str, Callable[[Table], str]] = {
    ".md": Table.markdown,
    ".tex": Table.latex,
    ".csv": lambda table: str(table.to_dataframe().to_csv(index=False)),
    ".txt": Table.text,
}
"""Formats of ``rerank evaluate --table``, by the suffix of the file."""

QUERY_FORMATS: dict[str, Callable[[Table], str]] = {
    ".tsv": lambda table: str(table.per_query().to_csv(sep="\t", index=False)),
    ".csv": lambda table: str(table.per_query().to_csv(index=False)),
}
"""Formats of ``--per-query``."""


def format_of(path: str | Path, formats: dict[str, Callable[[Table], str]]) -> Callable[[Table], str]:
    """Return the function that formats a table for a file.

    Raises:
        UserError: an unknown suffix.
    """
    if (suffix := Path(path).suffix) not in formats:
        raise UserError(f"{path}: cannot tell the format; the name must end in {', '.join(formats)}")
    return formats[suffix]


def without_nan(value: Any) -> Any:
    """Replace numbers that are not finite with None, at any depth."""
    if isinstance(value, dict):
        return {key: without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(without_nan, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value
