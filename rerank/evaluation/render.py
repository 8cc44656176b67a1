"""Render tables for the terminal, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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


class Best(str):
    """The best value of a column, which is bold outside plain text."""

    __slots__ = ()


@dataclass(frozen=True)
class Section:
    """A table of formatted cells, with its title and caption."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: Sequence[str] = ()

    def frame(self, escape: Callable[[str], str], bold: str) -> pd.DataFrame:
        """Escape the cells, and format the best with a template."""
        rows = [[bold.format(escape(of)) if isinstance(of, Best) else escape(of) for of in row] for row in self.rows]
        return pd.DataFrame(rows, columns=list(map(escape, self.header)))


def text(sections: Sequence[Section]) -> str:
    """Render tables as plain text, with names to the left and numbers to the right."""
    lines: list[str] = []
    for section in sections:
        table = [section.header, *section.rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        aligned = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in table]
        lines += [aligned[0], "─" * (sum(widths) + 2 * len(widths) - 2), *aligned[1:], "", *section.caption, ""]
    return "\n".join(lines[:-1]) + "\n"


def markdown(sections: Sequence[Section]) -> str:
    """Render tables as Markdown."""
    blocks = []
    for section in sections:
        frame = section.frame(in_markdown, "**{}**")
        ruler = ["---", *["---:"] * (len(section.header) - 1)]
        blocks.append("\n".join(f"| {' | '.join(row)} |" for row in (frame.columns, ruler, *frame.to_numpy())))
        blocks.append(in_markdown(" ".join(section.caption)))
    return "\n\n".join(blocks) + "\n"


def latex(sections: Sequence[Section]) -> str:
    """Render tables as LaTeX (package booktabs)."""
    tables = []
    for section in sections:
        caption, columns = " ".join(section.caption).translate(_LATEX), "l" + "r" * (len(section.header) - 1)
        frame = section.frame(_in_latex, r"\textbf{{{}}}")
        tables.append(frame.to_latex(index=False, escape=False, caption=caption, column_format=columns))
    return "\n".join(tables)


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
        rows.append(row)
    return Section("Differences", header, rows, caption)


def interval(ends: tuple[float, float] | None) -> str:
    """Format the interval of a difference; a dash if there is none."""
    return "-" if ends is None else "[{:+.4f}, {:+.4f}]".format(*ends)


def number(value: float, sign: str = "", digits: int = 4) -> str:
    """Format a number; a dash for NaN."""
    return "-" if np.isnan(value) else f"{value:{sign}.{digits}f}"


def probability(value: float) -> str:
    """Format a p-value; a dash for NaN."""
    return "-" if np.isnan(value) else "<0.0001" if value < 0.0001 else f"{value:.4f}"
