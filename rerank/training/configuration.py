"""From options and YAML files to a training configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rerank import losses, relaxations
from rerank.errors import UserError
from rerank.features.normalise import NORMALISERS
from rerank.models.load import MODELS
from rerank.settings.arguments import find_class
from rerank.settings.parser import join_configs, make_parser, parse

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from rerank.lists.data import Data
    from rerank.training.config import TrainConfig

DATA = {"ListsData": "rerank.lists.data", "FoldsData": "rerank.lists.data", "LetorData": "rerank.features.letor"}
SAMPLERS = dict.fromkeys(("Full", "Random", "PositivesNegatives", "Pairs"), "rerank.lists.sampling")
_LOSSES = sorted(losses.LOSSES, key=lambda name: "NDCG" not in name)  # suggested first

CLASSES = {
    "data": DATA,
    "sampler": SAMPLERS,
    "normalise": NORMALISERS,
    "model": MODELS,
    "loss": dict.fromkeys([*_LOSSES, *losses.PARTS], "rerank.losses"),
    "relaxation": dict.fromkeys(relaxations.RELAXATIONS, "rerank.relaxations"),
}
"""The module of each class that settings can name, by the key that takes it."""


def configuration(argv: Sequence[str]) -> tuple[TrainConfig, str]:
    """Parse the words of ``rerank train`` into a configuration and the run folder."""
    parser = train_parser(output=True)
    options = _parse(parser, classes_first(argv))
    return _instantiated(parser, options), options.output


def configured(settings: Mapping[str, Any]) -> TrainConfig:
    """Build the configuration that nested settings describe, as a YAML file has them."""
    parser = train_parser()
    return _instantiated(parser, _parse(parser, settings))


def data_of(settings: Mapping[str, Any]) -> Data:
    """Build the data that nested settings name under ``data``, ignoring other keys."""
    from rerank.lists.data import Data

    parser = make_parser("train", Data)
    parser.add_subclass_arguments(Data, "data")
    options = _parse(parser, {"data": settings["data"]})
    with _as_user_errors():
        data: Data = parser.instantiate(options).data
    return data


def check(given: Sequence[str] | Mapping[str, Any]) -> None:
    """Check keys and values without building anything."""
    from rerank.models.vectors.trees import Trees
    from rerank.training.config import check_values

    words = given if isinstance(given, Mapping) else classes_first(given)
    options = _parse(train_parser(), words)
    model = _named(options.model)
    check_values(options, _named(options.loss), trees=model is not None and issubclass(model, Trees))


def _parse(parser: ArgumentParser, given: Sequence[str] | Mapping[str, Any]) -> Namespace:
    import_named(given)
    return parse(parser, given, CLASSES)


def _named(chosen: Namespace | None) -> type | None:
    return None if chosen is None else find_class(chosen.class_path, object, "class_path")


def train_parser(output: bool = False) -> ArgumentParser:
    """Make the parser of ``rerank train``; ``output`` requires a run folder."""
    from rerank.training.config import TrainConfig

    parser = make_parser("train", TrainConfig, config=True)
    parser.description = "Train a reranker, from options or a YAML file; resume where an interrupted run stopped."
    parser.add_class_arguments(TrainConfig)
    parser.add_argument("--output", type=str | None, help="run folder to make, or to resume", required=output)
    parser.add_argument("--dry_run", action="store_true", help="check every input, estimate the cost, train nothing")
    parser.set_defaults(sampler={"class_path": "rerank.lists.sampling.Full"})
    return parser


def _instantiated(parser: ArgumentParser, options: Namespace) -> TrainConfig:
    from rerank.training.config import TrainConfig

    with _as_user_errors():
        made = parser.instantiate(options)
    return TrainConfig(
        **{key: value for key, value in vars(made).items() if key not in ("config", "output", "dry_run")}
    )


@contextmanager
def _as_user_errors() -> Iterator[None]:
    """Turn errors of constructors into one line."""
    try:
        yield
    except ValueError as error:
        lines = str(error).splitlines()  # of a key that may be null, the constructor's error is in the list below
        inner = [line.removeprefix("  - ") for line in lines if line.startswith("  - ")]
        raise UserError((inner or lines)[0]) from error


def classes_first(argv: Sequence[str]) -> list[str]:
    """Merge files, and sort options so that a class (``--loss``) precedes its arguments (``--loss.k``)."""
    options: list[list[str]] = []
    for word in join_configs(argv, "train"):
        if word.startswith("--") or not options:
            options.append([word])
        else:
            options[-1].append(word)
    options.sort(key=lambda words: -1 if words[0] == "--config" else words[0].partition("=")[0].count("."))
    return [word for words in options for word in words]


def import_named(given: Sequence[str] | Mapping[str, Any]) -> None:
    """Import the classes that options or settings name, so that the parser finds them by name."""
    words = {*re.findall(r"\w+", str(given))}
    for key, homes in CLASSES.items():
        for name in words & homes.keys():
            find_class(f"{homes[name]}.{name}", object, key)


def classes_of(key: str) -> dict[str, type]:
    """Import all classes that a key of `CLASSES` takes."""
    return {name: find_class(f"{module}.{name}", object, key) for name, module in CLASSES[key].items()}
