"""The report of ``rerank evaluate``."""

from __future__ import annotations

from pathlib import Path

from rerank.collections import read_qrels
from rerank.evaluation import render
from rerank.evaluation.compare import Comparison, judgments_of, ranking
from rerank.evaluation.significance import LEVEL
from rerank.lists.layout import is_lists_folder
from rerank.lists.view import Lists
from rerank.report.page import PageTable, Report, write_report


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


def comparison_tables(comparison: Comparison) -> list[PageTable]:
    """The means with each run's difference from the baseline and its interval, and all about the differences."""
    header, rows = render.means(comparison, unjudged=True)
    for name, row in zip(comparison.tables, rows, strict=True):
        for i, measure in enumerate(comparison.measures, 1):
            if found := comparison.differences.get((name, measure)):
                below = f"{render.number(found.mean, '+')} {render.interval(found.interval)}"
                row[i] = row[i]._replace(below=below)
    sentences = render.caption(comparison, render.LETTERS)
    if comparison.differences:
        interval = f"its {LEVEL:.0%} bootstrap interval over queries"
        sentences.append(f"Below a value: the difference from {comparison.baseline}, and {interval}.")
    if comparison.unjudged:
        sentences.append("unjudged@k: share of the documents in the top k that nobody judged.")
    tables = [PageTable("Measures", header, rows, sentences)]
    if comparison.differences:
        about = ["Cohen's d of the paired differences; p-values after the correction."]
        tables.append(PageTable(f"Differences from {comparison.baseline}", *render.differences(comparison), about))
    if comparison.parts:
        tables.append(PageTable("Seen and unseen", *render.parts(comparison), [render.PARTS]))
    return tables
