"""From options and YAML files to a training configuration."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank import losses, relaxations
from rerank.errors import UserError
from rerank.features.normalise import NORMALISERS
from rerank.models.load import MODELS
from rerank.settings.configs import add_config
from rerank.settings.described import find_class
from rerank.settings.parser import make_parser, parse

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from rerank.lists.data import Data
    from rerank.training.config import TrainConfig

DATA = {"ListsData": "rerank.lists.data", "FoldsData": "rerank.lists.folds", "LetorData": "rerank.features.letor"}
SAMPLERS = dict.fromkeys(("Full", "Random", "PositivesNegatives", "Pairs"), "rerank.lists.sampling")


def configuration(argv: Sequence[str]) -> tuple[TrainConfig, str]:
    """What the words of ``rerank train`` ask for: the configuration, and the run folder."""
    parser = train_parser()
    _check_needed(argv)
    options = parse(parser, classes_first(argv), import_classes())
    if not options.output:
        raise UserError("output: name a run folder, such as --output runs/x")
    return _instantiated(parser, options), options.output


def _check_needed(argv: Sequence[str]) -> None:
    """Name all that is missing at once where there is no file that may have it."""
    keys = {re.split(r"[=.]", word)[0] for word in argv}
    if "--config" in keys:
        return
    missing = [key for key in ("--data", "--model", "--loss", "--output") if key not in keys]
    if missing and missing != ["--loss"]:  # trees have one of their own
        raise UserError(f"{', '.join(missing)}: needed, here or in a --config FILE; see rerank train --help")


def configured(settings: Mapping[str, Any]) -> TrainConfig:
    """The configuration that nested settings describe, as a YAML file has them."""
    parser = train_parser()
    return _instantiated(parser, parse(parser, settings, import_classes()))


def data_of(settings: Mapping[str, Any]) -> Data:
    """The data that nested settings name under ``data``; the rest of them is not looked at."""
    from rerank.lists.data import Data

    parser = make_parser("train", Data)
    parser.add_subclass_arguments(Data, "data")
    options = parse(parser, {"data": settings["data"]}, import_classes())
    with _as_user_errors():
        data: Data = parser.instantiate(options).data
    return data


def check(given: Sequence[str] | Mapping[str, Any]) -> None:
    """Raise a UserError for keys or values that training would refuse; builds and writes nothing."""
    from rerank.models.vectors.boosting import Trees
    from rerank.training.config import check_values

    words = given if isinstance(given, Mapping) else classes_first(given)
    options = parse(train_parser(), words, import_classes())
    model = _named(options.model)
    check_values(options, _named(options.loss), trees=model is not None and issubclass(model, Trees))


def _named(chosen: Namespace | None) -> type | None:
    return None if chosen is None else find_class(chosen.class_path, object, "class_path")


def train_parser() -> ArgumentParser:
    """The parser of ``rerank train``."""
    from rerank.training.config import TrainConfig

    parser = make_parser("train", TrainConfig)
    parser.description = "Train a reranker, from options or a YAML file; resume where an interrupted run stopped."
    add_config(parser)
    parser.add_argument("--output", type=str | None, help="run folder to make, or to resume")
    parser.add_class_arguments(TrainConfig)
    parser.set_defaults(sampler={"class_path": "rerank.lists.sampling.Full"})
    return parser


def _instantiated(parser: ArgumentParser, options: Namespace) -> TrainConfig:
    from rerank.training.config import TrainConfig

    with _as_user_errors():
        made = parser.instantiate(options)
    return TrainConfig(**{key: value for key, value in vars(made).items() if key not in ("config", "output")})


@contextmanager
def _as_user_errors() -> Iterator[None]:
    """Say in one line what a class refuses."""
    try:
        yield
    except ValueError as error:
        lines = str(error).splitlines()  # of a key that may be null, what its class said is in the list below
        inner = [line.removeprefix("  - ") for line in lines if line.startswith("  - ")]
        raise UserError((inner or lines)[0]) from error


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


def import_classes() -> dict[str, list[str]]:
    """Import all of them, so that the parser finds them by name; returns the names by the keys that take them."""
    own = DATA | SAMPLERS | NORMALISERS | MODELS
    for name, module in own.items():
        getattr(import_module(module), name)
    found = {"loss": [*losses.load_all(), *losses.load_parts()], "relaxation": [*relaxations.load_all()]}
    return found | {"data": [*DATA], "sampler": [*SAMPLERS], "normalise": [*NORMALISERS], "model": [*MODELS]}


def first_lines(homes: Mapping[str, str]) -> dict[str, str]:
    """The first line of each class's docstring, read from its file: importing it might import torch."""
    lines = {}
    for name, module in homes.items():
        spec = find_spec(module)
        assert spec is not None and spec.origin is not None
        nodes = ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
        kind = next(node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name)
        lines[name] = (ast.get_docstring(kind) or "").partition("\n")[0]
    return lines
