"""From options and a YAML file to a finished run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from rerank.console import log_file, make_parser, parse
from rerank.errors import UserError

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
    parser.set_defaults(sampler={"class_path": "rerank.lists.sampling.Full"})  # as YAML, so that it can be dumped
    classes = [] if {"-h", "--help"} & set(argv) else _import_classes()
    options = parse(parser, classes_first(argv), classes)
    import torch

    from rerank.training.run_folder import RunFolder
    from rerank.training.trainer import Trainer

    folder = RunFolder(options.output, parser.dump(options))
    folder.check()
    if (measures := folder.finished()) is not None:
        log.info("%s is complete; name another output to train again", options.output)
        return measures
    torch.manual_seed(options.seed)  # a fresh head's weights
    try:
        config = parser.instantiate(options)
    except ValueError as error:
        raise UserError(str(error).splitlines()[0]) from error
    with log_file(folder.path):
        measures = Trainer(config, folder).run()
        for split, values in measures.items():
            numbers = ", ".join(f"{name} {value:.4f}" for name, value in values.items() if isinstance(value, float))
            log.info("%s: %s", split, numbers)
    return measures


def classes_first(argv: Sequence[str]) -> list[str]:
    """Options in any order: the file, then what chooses a class (``--loss``), then what goes into it (``--loss.k``)."""
    options: list[list[str]] = []
    for word in argv:
        if word.startswith("--") or not options:
            options.append([word])
        else:
            options[-1].append(word)

    def depth(option: list[str]) -> int:
        key = option[0].split("=")[0]
        return -1 if key == "--config" else key.count(".")

    return [word for option in sorted(options, key=depth) for word in option]


def _import_classes() -> list[str]:
    """Import our classes, so that a configuration may call them by their names alone; returns the names."""
    from rerank import losses, relaxations
    from rerank.lists import data, folds, sampling
    from rerank.models import cross_encoder

    own = [data.ListsData, folds.FoldsData, sampling.Full, sampling.PositivesNegatives, cross_encoder.CrossEncoder]
    return [*losses.load_all(), *relaxations.load_all(), *(kind.__name__ for kind in own)]
