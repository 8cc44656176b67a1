"""Comparison of runs in several measures, as numbers and as tables to read."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

import numpy as np
import pandas as pd

from rerank.evaluation.measure_names import parse_measure
from rerank.evaluation.measures import COUNTS, PerQuery
from rerank.evaluation.render import (
    CORRECTED,
    MARKS,
    Section,
    TableCell,
    gain_sentences,
    interval,
    number,
    plain,
    probability,
    queries_sentence,
)
from rerank.evaluation.significance import ALPHA, LEVEL, ROUNDING, TEST_NAMES, Correction, Test
from rerank.html import in_markdown

PARTS = "seen: queries with a relevant document that is relevant to a query that was trained on; unseen: the others."


@dataclass(frozen=True)
class Difference:
    """Difference between a run and the baseline in one measure.

    Attributes:
        difference: mean of run minus baseline over the queries.
        interval: bootstrap confidence interval of that mean; NaN if all differences are equal.
        cohens_d: Cohen's d of the paired differences.
        p: p-value by test; NaN if the test is undefined.
        p_corrected: p-values corrected over the whole table.
    """

    difference: float
    interval: tuple[float, float]
    cohens_d: float
    wins: int
    ties: int
    losses: int
    p: dict[Test, float]
    p_corrected: dict[Test, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """Mean of a run over the queries of one part, and its difference from the baseline, if any (else NaN)."""

    run: str
    measure: str
    part: str
    queries: int
    mean: float
    interval: tuple[float, float]
    difference: float
    difference_interval: tuple[float, float]


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
        comparisons: number of comparisons that p-values are corrected for, those with a difference in any query.
        unjudged: by run and depth, the share of unjudged documents in the top; NaN without documents.
        paths: files of the runs.
        ties: by run, the number of documents whose score equals that of the one before them.
        parts: the same over queries with and without a relevant document seen in training.
    """

    tables: dict[str, PerQuery]
    baseline: str | None
    tests: tuple[Test, ...]
    correction: Correction
    comparisons: int
    differences: dict[tuple[str, str], Difference]
    unjudged: dict[str, dict[int, float]] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    qrels: str = ""
    ties: dict[str, int] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    @property
    def first(self) -> PerQuery:
        """Return the values of the first run; measures, queries and policy are the same in all."""
        return next(iter(self.tables.values()))

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
                    low, high = found.interval
                    row |= {"difference": found.difference, "low": low, "high": high, "cohens_d": found.cohens_d}
                    row |= {"wins": found.wins, "ties": found.ties, "losses": found.losses}
                    for test in self.tests:
                        row |= {f"p_{test}": found.p[test], f"p_{test}_corrected": found.p_corrected[test]}
                rows.append(row)
        return pd.DataFrame(rows)

    def sections(self) -> list[Section]:
        """Return the means, differences from the baseline, and means over seen and unseen queries."""
        sections = [self._means()]
        sections += [self._differences()] if self.differences else []
        return sections + ([self._parts()] if self.parts else [])

    def __str__(self) -> str:
        return self.text()

    def text(self, bold: bool = False) -> str:
        """Render as plain text; terminal codes make the best of each column bold."""
        lines = [line for section in self.sections() for line in [*section.text(bold), ""]]
        return "\n".join([*lines, *self.caption()]) + "\n"

    def markdown(self) -> str:
        """Render as Markdown."""
        lines = [line for section in self.sections() for line in [*section.markdown(), ""]]
        return "\n".join([*lines, in_markdown(" ".join(self.caption()))]) + "\n"

    def latex(self) -> str:
        """Render as LaTeX (package booktabs)."""
        return "\n".join(section.latex() for section in self.sections())

    def _repr_html_(self) -> str:
        return "".join(part.html() for part in self.sections()) + f"<div>{escape(' '.join(self.caption()))}</div>"

    def caption(self) -> list[str]:
        """State the queries, the policy for empty ones, gain, tests and correction."""
        sentences = [queries_sentence(self.first), *gain_sentences(self.first)]
        where = "" if self.first.empty == "0" else " where they have relevant documents"
        for name, run in self.tables.items():
            if run.missing:
                sentences.append(f"{name}: {len(run.missing)} queries without candidates score 0{where}.")
            if ties := self.ties.get(name):
                equal = f"{name}: {ties} documents have the score of the one before"
                sentences.append(f"{equal}; ties are broken by document id, as in trec_eval.")
        if self.differences:
            sentences.append(f"{LEVEL:.0%} intervals: bootstrap over queries, not corrected for their number.")
        if self.differences and self.tests:
            tests = ", ".join(f"{MARKS[test]} {TEST_NAMES[test]}" for test in self.tests)
            preposition = "for" if self.correction == "none" else "over"
            how = f"{CORRECTED[self.correction]} {preposition} {self.comparisons}"
            sentences.append(f"Against {self.baseline}, p < {ALPHA}: {tests} (p-values {how} comparisons).")
        return [*sentences, PARTS] if self.parts else sentences

    def _means(self) -> Section:
        """Tabulate means: a row per run, a column per measure."""
        means = {name: table.mean for name, table in self.tables.items()}
        depths = list(next(iter(self.unjudged.values()), {}))
        rows = []
        for name, mean in means.items():
            row = plain(f"{name} (baseline)" if name == self.baseline else name)
            for measure in self.first.measures:
                value, found = mean[str(measure)], self.differences.get((name, str(measure)))
                highest = max(other[str(measure)] for other in means.values())
                best = len(means) > 1 and measure.NAME not in COUNTS and value >= highest - ROUNDING
                marked = "".join(MARKS[test] for test, p in found.p_corrected.items() if p < ALPHA) if found else ""
                summed = measure.NAME in COUNTS - {"Judged"}
                row.append(TableCell(f"{value:.0f}" if summed else number(value), best, marked))
            shares = self.unjudged.get(name, {}).values()
            rows.append([*row, *plain(*("-" if np.isnan(share) else f"{share:.1%}" for share in shares))])
        header = ["run", *self.measures, *(f"unjudged@{depth}" for depth in depths)]
        return Section("Measures", header, rows, self.caption())

    def _differences(self) -> Section:
        """Tabulate differences from the baseline: a row per run and measure."""
        header = ["run", "measure", "difference", f"{LEVEL:.0%} interval", "Cohen's d", "wins/ties/losses"]
        rows = []
        for (name, measure), found in self.differences.items():
            row = [name, measure, number(found.difference, "+"), interval(found.interval)]
            row += [number(found.cohens_d, "+", 2), f"{found.wins}/{found.ties}/{found.losses}"]
            rows.append(plain(*row, *map(probability, found.p_corrected.values())))
        title = f"Differences from {self.baseline}"
        about = [f"{title}, with the p-values after the correction."]
        return Section(title, [*header, *(f"p ({test})" for test in self.tests)], rows, about, names=2)

    def _parts(self) -> Section:
        """Tabulate seen and unseen queries: a row per run, measure and part."""
        share = f"{LEVEL:.0%} interval"
        header = ["run", "measure", "relevant documents", "queries", "mean", share]
        rows = []
        for part in self.parts:
            row = [part.run, part.measure, part.part, part.queries, number(part.mean), interval(part.interval, "")]
            if self.baseline:
                gain = [number(part.difference, "+"), interval(part.difference_interval)]
                row += ["", ""] if part.run == self.baseline else gain
            rows.append(plain(*row))
        return Section(
            "Seen and unseen", [*header, *(["difference", share] if self.baseline else [])], rows, [PARTS], 3
        )
