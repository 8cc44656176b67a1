"""The page of ``rerank lists``: what lists are worth, how systems overlap, their rankings side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ir_measures

from rerank.collections import Qrels
from rerank.evaluation.measures import Evaluator
from rerank.evaluation.overview import DEPTHS, Overview, facts, sections, verdict
from rerank.lists.view import Lists
from rerank.report.charts import Chart, Matrix, Series
from rerank.report.page import PageTable, Report, write_report
from rerank.retrieval.runs import Run

PAIRS = 2_000_000
"""Pairs of a candidate and a column up to which rankings are shown, since they are in memory."""


def shows_runs(lists: Lists) -> bool:
    """Whether lists are few enough for their rankings to be shown."""
    return lists.size * len(lists.store.column_names) <= PAIRS


def write_overview(about: Overview, path: str | Path) -> None:
    """Write the page."""
    sentences = [*facts(about), *verdict(about)]
    tables = [
        PageTable(title[0].upper() + title[1:], *table, [] if i else sentences)
        for i, (title, table) in enumerate(sections(about))
    ]
    names = [system.name for system in about.systems]
    order, qrels = about.lists.store.order, about.lists.qrels
    values = {name: about.alone[name] for name in names if name in about.alone}
    report = Report(
        title=f"Lists {'/'.join(Path(str(about.lists)).parts[-2:])}",
        tables=tables,
        values=values,
        baseline=order if order in values else next(iter(values), ""),
        runs=about.runs if values else {},
        qrels=qrels,
        lists=[about.lists],
        matrix=overlap(about) if len(names) > 1 else None,
        charts=[recall(about.runs, qrels, about.depth[2])] if values and about.runs and qrels else [],
    )
    write_report(report, path)


def overlap(about: Overview) -> Matrix:
    """What the systems' best candidates have in common."""
    depth = about.overlap_depth
    return Matrix(
        "Overlap of systems",
        [system.name for system in about.systems],
        about.overlap.tolist(),
        f"Of the best {depth} candidates of the row's system, how many are among the best {depth} of the column's, "
        "over all queries.",
    )


def recall(runs: Mapping[str, Run], qrels: Qrels, deepest: int) -> Chart:
    """Recall of each system by depth."""
    depths = sorted({1, 2, 5, *(depth for depth in DEPTHS if depth < deepest), deepest})
    judged = {query: grades for query, grades in qrels.items() if grades}
    evaluator = Evaluator(judged, [ir_measures.R @ depth for depth in depths])
    lines = [Series(name, depths, list(evaluator(run, name, warn=False).mean.values())) for name, run in runs.items()]
    return Chart("Recall by depth", "depth", "recall", lines, (0.0, 1.0))
