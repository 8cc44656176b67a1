"""``rerank evaluate``: score runs against judgments, and write tables."""

from __future__ import annotations

import os
from typing import Any

from rerank.commands.options import check_output
from rerank.errors import UserError
from rerank.storage.files import check_apart
from rerank.tasks.evaluate import evaluate as score_runs


def evaluate(
    json: str | None = None,
    table: list[str] | None = None,
    per_query: str | None = None,
    html: str | None = None,
    **asked: Any,
) -> None:
    """Score runs against judgments; with a baseline, test differences.

    Args:
        json: file for all results at full precision.
        table: files for the table (.md, .tex, .csv or .txt).
        per_query: file for the values per query (.tsv or .csv).
        html: file for a report: tables, differences per query, rankings side by side with the texts of a lists folder.
        asked: the arguments of :func:`rerank.evaluate`.
    """
    from rerank.evaluation.table import QUERY_FORMATS, TABLE_FORMATS, Table, format_of
    from rerank.storage.files import atomic_write

    outputs = [(path, format_of(path, TABLE_FORMATS)) for path in table or []]
    outputs += [(json, Table.to_json)] if json else []
    outputs += [(per_query, format_of(per_query, QUERY_FORMATS))] if per_query else []
    if html:
        from rerank.report.page import evaluation_page

        outputs.append((html, evaluation_page))
    for number, (path, _) in enumerate(outputs):
        if os.path.realpath(path) in [os.path.realpath(other) for other, _ in outputs[:number]]:
            raise UserError(f"{path}: given for two outputs; name another file for one of them")
        check_output(path)
        for run in [*asked["runs"], asked["baseline"] or ""]:
            file = run if os.path.exists(run) else run.partition("=")[2] or run
            check_apart(path, qrels=asked["qrels"], runs=file)
        for trained in asked["trained_on"] or []:
            check_apart(path, **{"trained-on": trained})
    comparison = score_runs(**asked)
    assert not isinstance(comparison, float)  # of files in a list
    for path, write in outputs:
        with atomic_write(path) as output:
            output.write(write(comparison))
    print(comparison.text(), end="")
