"""Tables of a page: header, rows of cells, a caption; every cell knows what it is sorted by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rerank.evaluation import render
from rerank.evaluation.compare import Comparison
from rerank.evaluation.significance import AnyTest

_NUMBER = re.compile(r"[<\[]?([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


@dataclass(frozen=True)
class PageCell:
    """A cell: its text, whether it is the best of its column, its significance marks, a second line."""

    text: str
    best: bool = False
    marks: str = ""
    below: str = ""

    @property
    def value(self) -> str:
        """The number that it starts with, which it is sorted by; empty where there is none."""
        found = _NUMBER.match(self.text)
        return found[1] if found else ""


@dataclass(frozen=True)
class PageTable:
    """A table.

    Attributes:
        title: its heading.
        header: the names of the columns.
        rows: the cells; the first of a row names it.
        caption: sentences that say what the numbers are.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[PageCell]]
    caption: Sequence[str] = field(default=())


def page_table(
    title: str, table: tuple[Sequence[str], Sequence[Sequence[render.Cell]]], caption: Sequence[str]
) -> PageTable:
    """A table as :mod:`rerank.evaluation.render` and experiments have it."""
    header, rows = table
    cells = [[PageCell(cell.text, cell.best, _marks(cell.significant)) for cell in row] for row in rows]
    return PageTable(title, header, cells, caption)


def comparison_tables(comparison: Comparison) -> list[PageTable]:
    """The means with each run's difference from the baseline and its interval, and all about the differences."""
    header, rows = render.means(comparison, unjudged=True)
    cells = []
    for name, row in zip(comparison.tables, rows, strict=True):
        shown = [PageCell(cell.text, cell.best, _marks(cell.significant)) for cell in row]
        for i, measure in enumerate(comparison.measures, 1):
            if found := comparison.differences.get((name, measure)):
                below = f"{render.number(found.mean, '+')} {render.interval(found.interval)}"
                shown[i] = PageCell(shown[i].text, shown[i].best, shown[i].marks, below)
        cells.append(shown)
    sentences = render.caption(comparison, render.LETTERS)
    if comparison.differences:
        interval = f"its {comparison.level:.0%} bootstrap interval over queries"
        sentences.append(f"Below a value: the difference from {comparison.baseline}, and {interval}.")
    if comparison.unjudged:
        sentences.append("unjudged@k: share of the documents in the top k that nobody judged.")
    tables = [PageTable("Measures", header, cells, sentences)]
    if comparison.differences:
        about = ["Cohen's d of the paired differences; p-values after the correction."]
        tables.append(page_table(f"Differences from {comparison.baseline}", render.differences(comparison), about))
    if comparison.parts:
        tables.append(page_table("Seen and unseen", render.parts(comparison), [render.PARTS]))
    return tables


def _marks(tests: Sequence[AnyTest]) -> str:
    return ",".join(render.LETTERS[test] for test in tests)
