"""From options and a YAML file to a finished run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from rerank.console import log_file, make_parser, parse

log = logging.getLogger("rerank")


def train(argv: Sequence[str]) -> dict[str, Any]:
    """Train a reranker as a YAML configuration says; goes on where an interrupted run stopped.

    Args:
        argv: ``--config FILE`` and options that override its keys.

    Returns:
        What ``measures.json`` of the run holds.
    """
    from rerank.training.config import TrainConfig

    parser = make_parser("train", train)
    parser.add_argument("--config", action="config", help="YAML file; options that follow it override its keys")
    parser.add_class_arguments(TrainConfig)
    if not {"-h", "--help"} & set(argv):
        _know_short_names()
    options = parse(parser, argv)
    import torch

    from rerank.training.run_folder import RunFolder
    from rerank.training.trainer import Trainer

    folder = RunFolder(options.output, parser.dump(options))
    folder.check()
    if (measures := folder.finished()) is not None:
        log.info("%s is complete; name another output to train again", options.output)
        return measures
    torch.manual_seed(options.seed)  # a fresh head's weights
    with log_file(folder.path):
        measures = Trainer(parser.instantiate(options), folder).run()
        for split, values in measures.items():
            numbers = ", ".join(f"{name} {value:.4f}" for name, value in values.items() if isinstance(value, float))
            log.info("%s: %s", split, numbers)
    return measures


def _know_short_names() -> None:
    """Import our classes, so that a configuration may call them by their names alone."""
    import rerank.lists.folds
    import rerank.models.cross_encoder  # noqa: F401
    from rerank import losses, relaxations

    losses.load_all()
    relaxations.load_all()
