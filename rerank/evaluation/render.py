"""Render tables for the terminal, Markdown, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np
import pandas as pd

from rerank.evaluation.measures import COUNTS, PerQuery
from rerank.evaluation.paired import Comparison
from rerank.evaluation.significance import Correction
from rerank.html import in_markdown

MARK = "†"
"""Mark of a significant difference from the baseline."""

CORRECTED: dict[Correction, str]
CORRECTED = {"none": "not corrected", "bonferroni": "Bonferroni-corrected", "holm": "Holm-corrected"}
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "<": r"$<$", ">": r"$>$", "|": r"$|$"}
    | {MARK: r"$^\dagger$"}
)


class TableCell(NamedTuple):
    """Text of a cell; the best of a column is bold, and significant differences carry a mark."""

    text: str
    best: bool = False
    marks: str = ""


def plain(*values: object) -> list[TableCell]:
    """Make cells without marks."""
    return [TableCell(str(value)) for value in values]


@dataclass(frozen=True)
class Section:
    """A table that renders itself: title, column names, cells and caption.

    Attributes:
        names: number of leading columns that hold names, which plain text aligns to the left.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[TableCell]]
    caption: Sequence[str] = ()
    names: int = 1

    def _frame(self, escape: Callable[[str], str], bold: str) -> pd.DataFrame:
        """Format the cells as strings, the best with a template."""
        header, *rows = [
            [(bold.format(escape(cell.text)) if cell.best else escape(cell.text)) + escape(cell.marks) for cell in row]
            for row in (plain(*self.header), *self.rows)
        ]
        return pd.DataFrame(rows, columns=header)

    def text(self) -> list[str]:
        """Return lines of plain text."""
        cells = [[cell.text + cell.marks for cell in row] for row in (plain(*self.header), *self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = []
        for row in cells:
            aligned = zip("<" * self.names + ">" * len(row), row, widths, strict=False)
            lines.append("  ".join(f"{cell:{sign}{width}}" for sign, cell, width in aligned).rstrip())
        return [lines[0], "─" * (sum(widths) + 2 * len(widths) - 2), *lines[1:]]

    def markdown(self) -> list[str]:
        """Return lines of Markdown, the best in bold."""
        frame = self._frame(in_markdown, "**{}**")
        ruler = ["---", *["---:"] * (len(self.header) - 1)]
        return [f"| {' | '.join(line)} |" for line in (frame.columns, ruler, *frame.to_numpy())]

    def latex(self) -> str:
        """Return LaTeX (package booktabs)."""
        caption, columns = " ".join(self.caption).translate(_LATEX), "l" + "r" * (len(self.header) - 1)
        frame = self._frame(_in_latex, r"\textbf{{{}}}")
        latex: str = frame.to_latex(index=False, escape=False, caption=caption, column_format=columns)
        return latex

    def html(self) -> str:
        """Return an HTML table."""
        with pd.option_context("display.max_colwidth", None):
            table: str = self._frame(escape, "<b>{}</b>").to_html(index=False, escape=False, border=0)
        return table


def _in_latex(text: str) -> str:
    """Escape text; the line break before it would take a leading bracket or star for an argument."""
    return ("{}" if text.startswith(("[", "*")) else "") + text.translate(_LATEX)


def queries_sentence(table: PerQuery) -> str:
    """State the number of queries, and the value of those without relevant documents."""
    lacking = {str(of): table.lacking[str(of)] for of in table.measures if of.NAME not in COUNTS}
    count = f"{len(table.queries)} queries"
    if not any(lacking.values()):
        return f"{count}, all with relevant documents." if lacking else f"{count}."
    numbers = set(lacking.values())
    each = numbers if len(numbers) == 1 else [f"{number} for {name}" for name, number in lacking.items()]
    fate = "are left out" if table.empty == "drop" else f"score {table.empty}"
    return f"{count}; those without relevant documents ({', '.join(map(str, each))}) {fate}."


def gain_sentences(table: PerQuery) -> list[str]:
    """State the gain of each form of nDCG."""
    linear, exponential = "nDCG has linear gain, as trec_eval.", "nDCG(dcg='exp-log2') has gain 2^y - 1."
    forms = [measure.params for measure in table.measures if measure.NAME == "nDCG" and "gains" not in measure.params]
    return list(dict.fromkeys(exponential if of.get("dcg") == "exp-log2" else linear for of in forms))


def differences_section(compared: Sequence[Comparison], caption: Sequence[str]) -> Section:
    """Tabulate differences: a row per comparison."""
    header = ["run", "against", "measure", "difference", "95% interval", "Cohen's d", "wins/ties/losses", "p"]
    rows = []
    for one in compared:
        row = [one.run, one.against, one.measure, number(one.difference, "+"), interval(one.interval)]
        row += [number(one.cohens_d, "+", 2), "/".join(map(str, one.counts)), probability(one.p_corrected)]
        rows.append(plain(*row))
    return Section("Differences", header, rows, caption, names=3)


def interval(ends: tuple[float, float] | None) -> str:
    """Format the interval of a difference; a dash if there is none."""
    return "-" if ends is None else "[{:+.4f}, {:+.4f}]".format(*ends)


def number(value: float, sign: str = "", digits: int = 4) -> str:
    """Format a number; a dash for NaN."""
    return "-" if np.isnan(value) else f"{value:{sign}.{digits}f}"


def probability(value: float) -> str:
    """Format a p-value; a dash for NaN."""
    return "-" if np.isnan(value) else "<0.0001" if value < 0.0001 else f"{value:.4f}"
