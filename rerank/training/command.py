"""From options and a YAML file to a finished run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.configs import add_config
from rerank.console import log_file, make_parser, parse
from rerank.errors import UserError

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from rerank.training.config import TrainConfig
    from rerank.training.run_folder import RunFolder
    from rerank.training.trainer import Trainer
    from rerank.training.trees import TreeTrainer

log = logging.getLogger("rerank")


def train(argv: Sequence[str]) -> dict[str, Any]:
    """Train a reranker as a YAML configuration says; goes on where an interrupted run stopped.

    Args:
        argv: ``--config FILE`` and options that override its keys.

    Returns:
        What ``measures.json`` of the run holds.
    """
    parser = _parser()
    classes = [] if {"-h", "--help"} & set(argv) else _import_classes()
    options = parse(parser, classes_first(argv), classes)
    from rerank.training.run_folder import RunFolder

    folder = RunFolder(options.output, parser.dump(options))
    folder.check()
    if (measures := folder.finished()) is not None:
        log.info("%s is complete; name another output to train again", options.output)
        return measures
    config = _instantiate(parser, options)
    with log_file(folder.path):
        measures = _trainer(config, folder).run()
        _report(measures)
    return measures


def check(argv: Sequence[str]) -> None:
    """Raise a UserError for keys or values that :func:`train` would refuse; builds and writes nothing."""
    from rerank.models.vectors.boosting import Trees
    from rerank.training.config import check_values

    options = parse(_parser(), classes_first(argv), _import_classes())
    model = _named(options.model)
    check_values(options, _named(options.loss), trees=isinstance(model, type) and issubclass(model, Trees))


def _named(chosen: Namespace | None) -> Any:
    """The class, or the function that makes one, that was chosen for a key."""
    if chosen is None:
        return None
    module, _, name = chosen.class_path.rpartition(".")
    return getattr(import_module(module), name)


def measure_test(path: str | Path) -> dict[str, Any]:
    """Measure the test lists of a finished run that was trained with ``test: false``, once.

    Args:
        path: its folder; ``test.trec`` is written there, and ``measures.json`` gets the test's measures.

    Returns:
        What ``measures.json`` holds.

    Raises:
        UserError: the run is not finished.
    """
    from rerank.training.run_folder import RunFolder

    config_file = Path(path) / "config.yaml"
    if not config_file.is_file():
        raise UserError(f"{path}: not a run folder (no config.yaml)")
    parser = _parser()
    _import_classes()
    folder = RunFolder(path, config_file.read_text())
    measures = folder.finished()
    if measures is None:
        raise UserError(f"{path}: the run is not finished; go on with rerank train --config {config_file}")
    if "test" in measures:
        return measures
    options = parse(parser, ["--config", str(config_file), "--test", "true"])
    with log_file(folder.path):
        measures = _trainer(_instantiate(parser, options), folder).finish()
        _report(measures)
    return measures


def _parser() -> ArgumentParser:
    from rerank.training.config import TrainConfig

    parser = make_parser("train", train)
    add_config(parser)
    parser.add_class_arguments(TrainConfig)
    parser.set_defaults(sampler={"class_path": "rerank.lists.sampling.Full"})  # as YAML, so that it can be dumped
    return parser


def _instantiate(parser: ArgumentParser, options: Namespace) -> TrainConfig:
    import torch

    torch.manual_seed(options.seed)  # a fresh head's weights
    try:
        return parser.instantiate(options)
    except ValueError as error:
        lines = str(error).splitlines()  # of a key that may be null, what its class said is in the list below
        inner = [line.removeprefix("  - ") for line in lines if line.startswith("  - ")]
        raise UserError((inner or lines)[0]) from error


def _trainer(config: TrainConfig, folder: RunFolder) -> Trainer | TreeTrainer:
    from rerank.models.vectors.boosting import Trees
    from rerank.training.trainer import Trainer
    from rerank.training.trees import TreeTrainer

    return (TreeTrainer if isinstance(config.model, Trees) else Trainer)(config, folder)


def _report(measures: dict[str, Any]) -> None:
    for split, values in measures.items():
        numbers = ", ".join(f"{name} {value:.4f}" for name, value in values.items() if isinstance(value, float))
        log.info("%s: %s", split, numbers)


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
    from rerank.features import letor, normalise
    from rerank.lists import data, folds, sampling
    from rerank.models.text import cross_encoder
    from rerank.models.vectors import attention, lightgbm, mlp, xgboost

    own = [data.ListsData, folds.FoldsData, letor.LetorData, sampling.Full, sampling.PositivesNegatives, sampling.Pairs]
    own += [normalise.QueryZScore, normalise.QueryMinMax, normalise.Standardise, normalise.SignedLog1p]
    own += [normalise.Quantile, cross_encoder.CrossEncoder, mlp.MLP, attention.SelfAttention]
    own += [lightgbm.LightGBM, xgboost.XGBoost]
    return [*losses.load_all(), *relaxations.load_all(), *(kind.__name__ for kind in own)]
