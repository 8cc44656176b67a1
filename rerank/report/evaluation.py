"""The report of ``rerank evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rerank.collections import read_qrels
from rerank.evaluation.compare import Comparison, judgments_of, ranking
from rerank.lists.layout import is_lists_folder
from rerank.lists.view import Lists
from rerank.report.curves import training_charts
from rerank.report.page import Report, check_suffix, write_report
from rerank.report.tables import comparison_tables


def write_evaluation(
    comparison: Comparison, path: str | Path, lists: str | None = None, training: Sequence[str] = ()
) -> None:
    """Write the report of a comparison of run files, or of columns of a lists folder, whose texts it shows then.

    Raises:
        UserError: a lists folder or a run folder that is none.
    """
    check_suffix(path)
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
        training={"/".join(Path(folder).parts[-2:]): training_charts(folder) for folder in training},
    )
    write_report(report, path)
