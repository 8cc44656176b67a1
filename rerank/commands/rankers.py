"""The commands that make rankers, use them and say what they are worth."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Literal

from rerank import selection, tasks
from rerank.commands.options import check_output
from rerank.errors import UserError
from rerank.settings.ranges import Count
from rerank.storage.files import check_apart


def auto(**asked: Any) -> str:
    """Compare rankers on held-out queries, and save the best.

    Repeating the command reuses completed steps, and continues a run that was killed.

    Args:
        asked: the arguments of :func:`rerank.auto`.
    """
    return str(selection.auto(**asked))


def train(argv: Sequence[str]) -> None:
    """Train a reranker, or resume where an interrupted run stopped."""
    from rerank.commands.train_help import help_for
    from rerank.training.configuration import configuration

    if (text := help_for(argv)) is not None:
        print(text)
        return
    words = [word for word in argv if word not in ("--dry_run", "--dry-run")]
    config, output = configuration(words)
    if len(words) < len(argv):
        from rerank.training.dry_run import dry_run

        print(dry_run(config, output))
        return
    from rerank.training.fit import fit

    fit(config, output)


def rerank(
    model: str,
    lists: str,
    output: str,
    depth: Count | None = None,
    no_mix: bool = False,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    token_budget: Count | None = None,
    instruction: str | None = None,
) -> None:
    """Score ranked lists with a trained model and write the run.

    Several processes (``torchrun``), on one machine or many, share the lists.

    Args:
        model: folder of a trained model, such as runs/x/best.
        lists: lists folder made by ``rerank retrieve``, or a file of feature vectors (LETOR, svmlight).
        output: run file to write (TREC).
        depth: candidates reranked per query; null takes all of the list. Deeper ones are left out.
        no_mix: rank by the model alone, where it was saved with a mix.
        precision: arithmetic of the encoder; auto takes bf16 where the hardware is fast at it.
        token_budget: padded tokens (documents, for feature vectors) per forward pass; null takes the model's own.
        instruction: instruction for queries without one, if the model's prompt has a place for it.
    """
    from rerank.retrieval.runs import check_run_file
    from rerank.scoring.outputs import write_reranked
    from rerank.tasks.rerank_lists import lists_to_score

    check_apart(output, lists=lists, model=model)
    check_output(output)
    check_run_file(output)
    chosen = lists_to_score(model, lists, depth, token_budget)
    write_reranked(
        model, chosen, output, mix=not no_mix, precision=precision, budget=token_budget, instruction=instruction
    )


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
        html: file for a report: tables, differences per query, rankings side by side.
        lists: lists folder with texts for the report to show.
        asked: what :func:`rerank.evaluate` takes.
    """
    from rerank.evaluation import export
    from rerank.report.page import evaluation_page
    from rerank.storage.files import atomic_write

    if lists and not html:
        raise UserError("lists: only a report shows it; name one with --html FILE")
    outputs = [(path, export.format_of(path, "table")) for path in table or []]
    outputs += [(json, export.to_json)] if json else []
    outputs += [(per_query, export.format_of(per_query, "per_query"))] if per_query else []
    outputs += [(html, lambda found: evaluation_page(found, lists))] if html else []
    for number, (path, _) in enumerate(outputs):
        if os.path.realpath(path) in [os.path.realpath(other) for other, _ in outputs[:number]]:
            raise UserError(f"{path}: given for two outputs; name another file for one of them")
        check_output(path)
        for run in [*asked["runs"], asked["baseline"] or ""]:
            file = run if os.path.exists(run) else run.partition("=")[2] or run
            check_apart(path, qrels=asked["qrels"], runs=file, lists=lists)
    comparison = tasks.evaluate(**asked)
    assert not isinstance(comparison, float)  # of files in a list
    for path, write in outputs:
        with atomic_write(path) as output:
            output.write(write(comparison))
    print(comparison.text(bold=sys.stdout.isatty()), end="")


def experiment(argv: Sequence[str]) -> None:
    """Compare methods over folds and seeds, from a YAML file to tables."""
    from rerank.commands.experiment import experiment as run_experiment

    if run_experiment(argv):
        sys.exit(1)
