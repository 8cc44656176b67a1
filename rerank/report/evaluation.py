"""The report of ``rerank evaluate``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rerank.collections import read_qrels
from rerank.evaluation.compare import Comparison, judgments_of, ranking
from rerank.evaluation.render import Section, interval, number, sections
from rerank.evaluation.significance import LEVEL
from rerank.lists.layout import is_lists_folder
from rerank.lists.view import Lists
from rerank.report.page import Report, write_report


def write_evaluation(comparison: Comparison, path: str | Path, lists: str | None = None) -> None:
    """Write the report of a comparison of run files, or of columns of a lists folder, whose texts it shows then."""
    judged = Lists.open(comparison.qrels) if is_lists_folder(Path(comparison.qrels)) else None
    qrels = read_qrels(comparison.qrels) if judged is None else judgments_of(judged)
    shown = Lists.open(lists) if lists else judged
    report = Report(
        title=f"{len(comparison.tables)} runs on {'/'.join(Path(comparison.qrels).parts[-2:])}",
        tables=comparison_tables(comparison),
        values=comparison.tables,
        baseline=comparison.baseline or next(iter(comparison.tables)),
        runs={name: ranking(form, name, qrels, judged)[0] for name, form in comparison.paths.items()},
        qrels=qrels,
        lists=[] if shown is None else [shown],
    )
    write_report(report, path)


def comparison_tables(comparison: Comparison) -> list[Section]:
    """The tables of a comparison, the means with each run's difference from the baseline and its interval."""
    first, *others = sections(comparison)
    rows, said = [list(row) for row in first.rows], list(first.caption)
    for name, row in zip(comparison.tables, rows, strict=True):
        for i, measure in enumerate(comparison.measures, 1):
            if found := comparison.differences.get((name, measure)):
                row[i] = row[i]._replace(below=f"{number(found.mean, '+')} {interval(found.interval)}")
    if comparison.differences:
        what = f"its {LEVEL:.0%} bootstrap interval over queries"
        said.append(f"Below a value: the difference from {comparison.baseline}, and {what}.")
    if comparison.unjudged:
        said.append("unjudged@k: share of the documents in the top k that nobody judged.")
    return [replace(first, rows=rows, caption=said), *others]
