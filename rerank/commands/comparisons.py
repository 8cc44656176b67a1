"""``rerank evaluate``, ``compare``, ``experiment`` and ``verify``: what rankers are worth."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rerank import tasks
from rerank.errors import UserError
from rerank.storage.files import check_apart


def evaluate(
    json: str | None = None,
    table: list[str] | None = None,
    per_query: str | None = None,
    html: str | None = None,
    lists: str | None = None,
    **asked: Any,
) -> None:
    """Score runs against judgments; with a baseline, test differences.

    Args:
        json: file for all results at full precision.
        table: files for the table (.md, .tex, .csv or .txt).
        per_query: file for the values per query (.tsv, .csv or .jsonl).
        html: file for a report: tables, differences per query, rankings side by side, precision and recall.
        lists: lists folder with texts for the report to show.
        asked: what :func:`rerank.evaluate` takes.
    """
    from rerank.evaluation import export, render

    if html:
        from rerank.report.evaluation import write_evaluation
        from rerank.report.page import check_suffix

        check_suffix(html)
    elif lists:
        raise UserError("lists: only a report shows it; name one with --html FILE")
    for path in table or []:
        export.check_suffix(path, export.TABLE_SUFFIXES)
    if per_query:
        export.check_suffix(per_query, export.PER_QUERY_SUFFIXES)
    outputs = [*(table or []), *(path for path in (json, per_query, html) if path)]
    for number, path in enumerate(outputs):
        if path in outputs[:number]:
            raise UserError(f"{path}: given for two outputs; name another file for one of them")
        for run in [*asked["runs"], asked["baseline"] or ""]:
            check_apart(path, qrels=asked["qrels"], runs=run.partition("=")[2] or run, lists=lists)
    comparison = tasks.evaluate(**asked)
    for path in table or []:
        export.write_table(comparison, path)
    if json:
        export.write_json(comparison, json)
    if per_query:
        export.write_per_query(comparison, per_query)
    if html:
        write_evaluation(comparison, html, lists)
    print(render.on_screen(comparison, bold=sys.stdout.isatty()), end="")


def compare(**asked: Any) -> str:
    """Compare rankers, columns and servers: quality and cost by depth.

    Args:
        asked: what :func:`rerank.compare` takes.
    """
    return str(tasks.compare(**asked))


def experiment(argv: Sequence[str]) -> None:
    """Compare methods over folds and seeds, from a YAML file to tables."""
    from rerank.commands.experiment import experiment as run_experiment

    if run_experiment(argv):
        sys.exit(1)


def verify(path: str) -> str:
    """Check that a folder of runs, models or lists is undamaged.

    Args:
        path: the folder; every file in it that has a hash is read.
    """
    from rerank.commands.verify import verify as verified

    return "\n".join(f"{line}, whole" for line in verified(path))
