"""The report of ``rerank evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rerank.collections import read_qrels
from rerank.evaluation.compare import Comparison, ties_by_id
from rerank.lists.view import Lists
from rerank.report.curves import training_charts
from rerank.report.page import Report, check_suffix, write_report
from rerank.report.tables import comparison_tables
from rerank.retrieval.runs import read_run


def write_evaluation(
    comparison: Comparison, path: str | Path, lists: str | None = None, training: Sequence[str] = ()
) -> None:
    """Write the report of a comparison of run files.

    Raises:
        UserError: a lists folder or a run folder that is none.
    """
    check_suffix(path)
    qrels = read_qrels(comparison.qrels)
    report = Report(
        title=f"{len(comparison.tables)} runs on {'/'.join(Path(comparison.qrels).parts[-2:])}",
        tables=comparison_tables(comparison),
        values=comparison.tables,
        baseline=comparison.baseline or next(iter(comparison.tables)),
        runs={name: ties_by_id(read_run(file), qrels)[0] for name, file in comparison.paths.items()},
        qrels=qrels,
        lists=[Lists.open(lists)] if lists else [],
        training={"/".join(Path(folder).parts[-2:]): training_charts(folder) for folder in training},
    )
    write_report(report, path)
