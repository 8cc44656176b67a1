"""``rerank train``: train a reranker from options and YAML files."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from rerank.commands.options import HELP, help_page

TRAIN_HELP = files("rerank.commands").joinpath("train.txt").read_text("utf-8").rstrip()


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

        if estimate := dry_run(config, output):  # the main process has it
            print(estimate)
        return
    from rerank.training.fit import fit

    fit(config, output)
