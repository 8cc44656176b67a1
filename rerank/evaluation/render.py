"""A comparison as a table for the terminal, Markdown or LaTeX, with a caption that says how it was measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np

from rerank.evaluation.compare import Comparison
from rerank.evaluation.measures import COUNTS, PerQuery
from rerank.evaluation.significance import ALPHA, LEVEL, TEST_NAMES, AnyTest, Correction
from rerank.html import in_markdown

LETTERS = {test: test[0] for test in TEST_NAMES}
MARKS = {test: letter.translate(str.maketrans("btwr", "ᵇᵗʷʳ")) for test, letter in LETTERS.items()}
CORRECTED: dict[Correction, str]
CORRECTED = {"none": "not corrected", "bonferroni": "Bonferroni-corrected", "holm": "Holm-corrected"}
_NUMBER = re.compile(r"[<\[]?([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "<": r"$<$", ">": r"$>$", "|": r"$|$"}
)
"""What LaTeX takes for signs of its own, as it shows them."""

PARTS = "seen: queries with a relevant document that is relevant to a query that was trained on; unseen: the others."


class TableCell(NamedTuple):
    """What a table shows in one place."""

    text: str
    best: bool = False
    significant: tuple[AnyTest, ...] = ()
    below: str = ""

    @property
    def marks(self) -> str:
        return ",".join(LETTERS[test] for test in self.significant)

    @property
    def value(self) -> str:
        """The number that it starts with, which a page sorts by; empty where there is none."""
        number = _NUMBER.match(self.text)
        return number[1] if number else ""


def plain(*shown: object) -> list[TableCell]:
    """Cells without marks."""
    return [TableCell(str(value)) for value in shown]


@dataclass(frozen=True)
class Section:
    """A table as any medium shows it: heading, names of columns, cells, and sentences that say what the numbers are.

    Attributes:
        names: how many columns hold names, which plain text aligns to the left.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[TableCell]]
    caption: Sequence[str] = ()
    names: int = 1

    def text(self, bold: bool = False) -> list[str]:
        """Lines of plain text; the best may be bold by terminal codes."""

        def show(cell: TableCell, width: int, left: bool) -> str:
            marks = "".join(MARKS[test] for test in cell.significant)
            shown = cell.text + marks
            padding = " " * (width - len(shown))
            shown = f"\033[1m{shown}\033[0m" if bold and cell.best else shown
            return shown + padding if left else padding + shown

        cells = [plain(*self.header), *self.rows]
        widths = [max(len(cell.text) + len(cell.significant) for cell in column) for column in zip(*cells, strict=True)]
        places = [(width, i < self.names) for i, width in enumerate(widths)]
        lines = ["  ".join(show(cell, *place) for cell, place in zip(row, places, strict=True)) for row in cells]
        first, *others = (line.rstrip() for line in lines)
        return [first, "─" * (sum(widths) + 2 * len(widths) - 2), *others]

    def markdown(self) -> list[str]:
        """Lines of Markdown, the best in bold, marks as superscripts."""

        def show(cell: TableCell) -> str:
            plain = in_markdown(cell.text)
            shown = f"**{plain}**" if cell.best else plain
            return f"{shown}<sup>{cell.marks}</sup>" if cell.marks else shown

        ruler = ["---", *["---:"] * (len(self.header) - 1)]
        header, *rows = [[show(cell) for cell in row] for row in (plain(*self.header), *self.rows)]
        return ["| " + " | ".join(line) + " |" for line in (header, ruler, *rows)]

    def latex(self) -> str:
        """LaTeX (package booktabs), as for Markdown."""

        def show(cell: TableCell) -> str:
            shown = cell.text.translate(LATEX)
            shown = f"{{}}{shown}" if shown[:1] in ("[", "*") else shown  # no argument of the line break before it
            shown = rf"\textbf{{{shown}}}" if cell.best else shown
            return rf"{shown}$^{{\mathrm{{{cell.marks}}}}}$" if cell.marks else shown

        lines = [" & ".join(map(show, row)) for row in (plain(*self.header), *self.rows)]
        first, *others = (line + r" \\" for line in lines)
        begin = [r"\begin{table}", r"\centering", rf"\caption{{{' '.join(self.caption).translate(LATEX)}}}"]
        begin += [rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}", r"\toprule", first, r"\midrule"]
        return "\n".join([*begin, *others, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])

    def html(self) -> str:
        def show(cell: TableCell) -> str:
            shown = f"<b>{escape(cell.text)}</b>" if cell.best else escape(cell.text)
            return f"<td>{shown}<sup>{cell.marks}</sup></td>" if cell.marks else f"<td>{shown}</td>"

        head = "".join(f"<th>{escape(name)}</th>" for name in self.header)
        body = "".join(f"<tr>{''.join(map(show, row))}</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def sections(comparison: Comparison) -> list[Section]:
    """The tables of a comparison."""
    tables = [means(comparison)]
    tables += [differences(comparison)] if comparison.differences else []
    return tables + ([parts(comparison)] if comparison.parts else [])


def text(comparison: Comparison, bold: bool = False) -> str:
    """Render as text: the means, and with a baseline the differences from it.

    The best of each column may be bold by terminal codes.
    """
    lines = [line for table in sections(comparison) for line in [*table.text(bold), ""]]
    return "\n".join([*lines, *caption(comparison, MARKS)]) + "\n"


def markdown(comparison: Comparison) -> str:
    """Markdown tables and what they show."""
    lines = [line for table in sections(comparison) for line in [*table.markdown(), ""]]
    return "\n".join([*lines, in_markdown(" ".join(caption(comparison, LETTERS)))]) + "\n"


def html(comparison: Comparison) -> str:
    """HTML tables for notebooks."""
    tables = "".join(table.html() for table in sections(comparison))
    return tables + f"<div>{escape(' '.join(caption(comparison, LETTERS)))}</div>"


def latex(comparison: Comparison) -> str:
    """LaTeX tables."""
    return "\n".join(table.latex() for table in sections(comparison))


def caption(comparison: Comparison, marks: dict[AnyTest, str]) -> list[str]:
    """Sentences that say what the numbers are: queries and the policy for empty ones, gain, tests, correction."""
    table = comparison.first
    sentences = [queries_sentence(table), *gain_sentences(table)]
    for name, run in comparison.tables.items():
        if run.missing:
            where = "" if table.empty == "0" else " where they have relevant documents"
            sentences.append(f"{name}: {len(run.missing)} queries without candidates score 0{where}.")
    for name, count in comparison.ties.items():
        if count:
            of = f"{name}: {count} {'document has' if count == 1 else 'documents have'} the score of the one before"
            sentences.append(f"{of}; ties are broken by document id, as in trec_eval.")
    if comparison.differences:
        sentences.append(f"{LEVEL:.0%} intervals: bootstrap over queries, not corrected for their number.")
    if comparison.differences and comparison.tests:
        tests = ", ".join(f"{marks[test]} {TEST_NAMES[test]}" for test in comparison.tests)
        preposition = "for" if comparison.correction == "none" else "over"
        how = f"{CORRECTED[comparison.correction]} {preposition} {comparison.comparisons}"
        sentences.append(f"Against {comparison.baseline}, p < {ALPHA}: {tests} (p-values {how} comparisons).")
    if comparison.parts:
        sentences.append(PARTS)
    return sentences


def queries_sentence(table: PerQuery) -> str:
    """How many queries there are, and what those without relevant documents score."""
    lacking = {
        str(measure): int(lacks.sum())
        for measure, lacks in zip(table.measures, table.without_relevant, strict=True)
        if measure.NAME not in COUNTS
    }
    count = f"{len(table.queries)} queries"
    if not lacking:
        return f"{count}."
    if not any(lacking.values()):
        return f"{count}, all with relevant documents."
    each = [f"{number} for {name}" for name, number in lacking.items()]
    which = str(max(lacking.values())) if len(set(lacking.values())) == 1 else ", ".join(each)
    fate = "are left out" if table.empty == "drop" else f"score {table.empty}"
    return f"{count}; those without relevant documents ({which}) {fate}."


def gain_sentences(table: PerQuery) -> list[str]:
    """Which gain each form of nDCG has."""
    linear, exponential = "nDCG has linear gain, as trec_eval.", "nDCG(dcg='exp-log2') has gain 2^y - 1."
    forms = [measure.params for measure in table.measures if measure.NAME == "nDCG" and "gains" not in measure.params]
    return list(dict.fromkeys(exponential if of.get("dcg") == "exp-log2" else linear for of in forms))


def means(comparison: Comparison) -> Section:
    """A run a row, a measure a column."""
    by_run = {name: table.mean for name, table in comparison.tables.items()}
    counts = {str(measure) for measure in comparison.first.measures if measure.NAME in COUNTS}
    sums = {measure for measure in counts if not measure.startswith("Judged")}
    depths = list(next(iter(comparison.unjudged.values()), {}))
    header = ["run", *comparison.measures, *(f"unjudged@{depth}" for depth in depths)]
    rows = []
    for name in comparison.tables:
        row = [TableCell(f"{name} (baseline)" if name == comparison.baseline else name)]
        for measure in comparison.measures:
            value, found = by_run[name][measure], comparison.differences.get((name, measure))
            highest = max(mean[measure] for mean in by_run.values())
            best = len(by_run) > 1 and measure not in counts and value >= highest - 1e-12
            marked = tuple(test for test, p in found.corrected.items() if p < ALPHA) if found else ()
            row.append(TableCell(f"{value:.0f}" if measure in sums else number(value), best, marked))
        for depth in depths:
            top = comparison.unjudged[name][depth]
            row.append(TableCell(f"{top.count / top.retrieved:.1%}" if top.retrieved else "-"))
        rows.append(row)
    return Section("Measures", header, rows, caption(comparison, LETTERS))


def differences(comparison: Comparison) -> Section:
    """A run and measure a row; p-values after the correction."""
    tests = [f"p ({test})" for test in comparison.tests]
    header = ["run", "measure", "difference", f"{LEVEL:.0%} interval", "Cohen's d", "wins/ties/losses", *tests]
    rows = []
    for (name, measure), found in comparison.differences.items():
        shown = [name, measure, number(found.mean, "+"), interval(found.interval)]
        shown += [number(found.effect, "+", 2), f"{found.wins}/{found.ties}/{found.losses}"]
        rows.append(plain(*shown, *(probability(found.corrected[test]) for test in comparison.tests)))
    title = f"Differences from {comparison.baseline}"
    return Section(title, header, rows, [f"{title}, with the p-values after the correction."], names=2)


def parts(comparison: Comparison) -> Section:
    """A run, measure and part a row, with intervals; the difference is from the baseline."""
    share = f"{LEVEL:.0%} interval"
    header = ["run", "measure", "relevant documents", "queries", "mean", share]
    header += ["difference", share] if comparison.baseline else []
    rows = []
    for found in comparison.parts:
        shown = [found.run, found.measure, found.part, found.queries, number(found.mean), interval(found.interval, "")]
        if comparison.baseline:
            of_baseline = found.run == comparison.baseline
            shown += ["", ""] if of_baseline else [number(found.difference, "+"), interval(found.difference_interval)]
        rows.append(plain(*shown))
    return Section("Seen and unseen", header, rows, [PARTS], names=3)


def interval(ends: tuple[float, float], sign: str = "+") -> str:
    """An interval as tables show it; a dash for none."""
    low, high = ends
    return "-" if np.isnan(low) else f"[{number(low, sign)}, {number(high, sign)}]"


def number(value: float, sign: str = "", digits: int = 4) -> str:
    """A number as tables show it; a dash for none."""
    return "-" if np.isnan(value) else f"{value:{sign}.{digits}f}"


def probability(value: float) -> str:
    """A p-value as tables show it."""
    return "-" if np.isnan(value) else "<0.0001" if value < 0.0001 else f"{value:.4f}"
