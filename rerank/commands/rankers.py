"""``rerank auto``, ``train``, ``calibrate`` and ``rerank``: rankers are made, and used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal

from rerank import tasks
from rerank.errors import UserError
from rerank.settings.ranges import Count, check_unused
from rerank.storage.files import check_apart


def auto(**asked: Any) -> str:
    """Climb from the first stage to a ranker that earns its place.

    If the command was killed, the same command goes on where it was.

    Args:
        asked: what :func:`rerank.auto` takes.
    """
    ladder = tasks.auto(**asked)
    return f"{ladder}\n\n{ladder.saved}"


def train(argv: Sequence[str]) -> None:
    """Train a reranker, or resume where an interrupted run stopped."""
    from rerank.commands.train_help import help_for
    from rerank.training.configuration import configuration

    if (text := help_for(argv)) is not None:
        print(text)
        return
    config, output = configuration(argv)
    from rerank.training.fit import fit

    fit(config, output)


def calibrate(**asked: Any) -> str:
    """Turn scores into probabilities of relevance, with thresholds.

    Args:
        asked: what :func:`rerank.calibrate` takes.
    """
    return str(tasks.calibrate(**asked))


def rerank(
    model: str,
    lists: str | None = None,
    output: str | None = None,
    stdin: bool = False,
    depth: Count | None = None,
    no_mix: bool = False,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    token_budget: Count | None = None,
) -> None:
    """Score ranked lists with a trained model and write the run.

    If the command was killed, the same command finishes the work. Several processes (``torchrun``), on one machine or
    many, share the lists.

    Args:
        model: folder of a trained model, such as runs/x/best.
        lists: lists folder made by ``rerank retrieve``, or a file of feature vectors (LETOR, svmlight).
        output: run file to write (TREC).
        stdin: read queries with their documents from standard input, a JSON object per line, and answer each with a
            line: {"query": "…", "documents": ["…"]} with {"ranking": [{"index": 0, "score": 1.5}]}.
        depth: candidates reranked per query; null takes all of the list. Deeper ones are left out.
        no_mix: rank by the model alone, where it was saved with a mix.
        precision: arithmetic of the encoder; auto takes bf16 where the hardware is fast at it.
        token_budget: padded tokens (documents, for feature vectors) per forward pass; null takes the model's own.
    """
    if stdin:
        from rerank.models.load import load_model
        from rerank.tasks.answer import answer_lines

        why = "--stdin reads from the standard input, and answers on the standard output"
        check_unused(why, rerank, lists=lists, output=output)
        check_unused("--stdin scores all documents of a line; its top_k limits the answer", rerank, depth=depth)
        with open(1, "w", encoding="utf-8", closefd=False) as out:  # whatever the terminal's encoding is
            failed = answer_lines(load_model(model, mix=not no_mix), sys.stdin.buffer, out, token_budget, precision)
        if failed:
            raise UserError("some lines could not be answered; each says why")
        return
    for name, value in (("lists", lists), ("output", output)):
        if value is None:
            raise UserError(f"--{name}: needed, unless --stdin is given")
    from rerank.scoring.outputs import write_reranked
    from rerank.tasks.rerank_lists import lists_to_score

    check_apart(str(output), lists=lists, model=model)
    chosen = lists_to_score(model, str(lists), depth, token_budget)
    write_reranked(model, chosen, str(output), mix=not no_mix, precision=precision, budget=token_budget)
