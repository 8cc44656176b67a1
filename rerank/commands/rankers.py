"""The commands that make rankers, use them and say what they are worth."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from rerank import selection, tasks
from rerank.commands.options import HELP, check_output, help_page
from rerank.errors import UserError
from rerank.progress import is_main, log
from rerank.storage.files import check_apart

TRAIN_HELP = files("rerank.commands").joinpath("train.txt").read_text("utf-8").rstrip()


def auto(**asked: Any) -> str:
    """Compare rankers on held-out queries, and save the best.

    Repeating the command reuses completed steps, and continues a run that was killed.

    Args:
        asked: the arguments of :func:`rerank.auto`.
    """
    return str(selection.auto(**asked))


def train(argv: Sequence[str]) -> None:
    """Train a reranker, or resume where an interrupted run stopped."""
    from rerank.training.configuration import configuration, train_parser

    if HELP & set(argv):  # one screen, or with "all" a paragraph per option
        print(help_page(train_parser()) if argv[-1] == "all" else TRAIN_HELP)
        return
    words = [word for word in argv if word not in ("--dry_run", "--dry-run")]
    config, output = configuration(words)
    if len(words) < len(argv):
        from rerank.training.dry_run import dry_run

        print(dry_run(config, output))
        return
    from rerank.training.fit import fit

    fit(config, output)


def rerank(output: str, **asked: Any) -> None:
    """Score ranked lists with a trained model and write the run.

    Several processes (``torchrun``), on one machine or many, share the lists.

    Args:
        output: run file to write (TREC).
        asked: what :func:`rerank.rerank_lists` takes.
    """
    from rerank.retrieval.runs import check_run_file, write_run

    check_apart(output, lists=asked["lists"], model=asked["model"])
    check_output(output)
    check_run_file(output)
    run = tasks.rerank_lists(**asked)
    if is_main():
        write_run(output, run, tag="rerank")
        log.info("%s: %d queries", output, len(run))


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
        asked: what :func:`rerank.evaluate` takes.
    """
    from rerank.evaluation.table import QUERY_FORMATS, TABLE_FORMATS, Table, format_of
    from rerank.report.page import evaluation_page
    from rerank.storage.files import atomic_write

    outputs = [(path, format_of(path, TABLE_FORMATS)) for path in table or []]
    outputs += [(json, Table.to_json)] if json else []
    outputs += [(per_query, format_of(per_query, QUERY_FORMATS))] if per_query else []
    outputs += [(html, evaluation_page)] if html else []
    for number, (path, _) in enumerate(outputs):
        if os.path.realpath(path) in [os.path.realpath(other) for other, _ in outputs[:number]]:
            raise UserError(f"{path}: given for two outputs; name another file for one of them")
        check_output(path)
        for run in [*asked["runs"], asked["baseline"] or ""]:
            file = run if os.path.exists(run) else run.partition("=")[2] or run
            check_apart(path, qrels=asked["qrels"], runs=file)
    comparison = tasks.evaluate(**asked)
    assert not isinstance(comparison, float)  # of files in a list
    for path, write in outputs:
        with atomic_write(path) as output:
            output.write(write(comparison))
    print(comparison.text(), end="")
