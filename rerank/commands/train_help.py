"""``rerank train --help``: one screen, from the configuration's own fields; ``--help all`` is the long one."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from importlib.resources import files
from itertools import zip_longest
from typing import Any

from rerank.commands.options import help_page
from rerank.commands.show import explain, first_lines, loaded, show
from rerank.errors import UserError, nearest
from rerank.features.normalise import NORMALISERS
from rerank.models.load import MODELS
from rerank.settings.described import find_class
from rerank.settings.parser import make_parser
from rerank.training.config import Optimization, TrainConfig
from rerank.training.configuration import DATA, SAMPLERS, train_parser

KINDS = {"data": DATA, "model": MODELS, "sampler": SAMPLERS, "normalise": NORMALISERS}
"""Keys that take a class, except for the loss, which has a command of its own."""


def help_for(argv: Sequence[str]) -> str | None:
    """Return the text of ``--help``, ``--help all`` or ``--model.help``, without importing torch; None without one."""
    for word, after in zip_longest(argv, argv[1:]):
        key, dot, last = word.removeprefix("--").rpartition(".")
        if word in ("-h", "--help"):
            return help_page(train_parser()) if after == "all" else page()
        if dot and last.partition("=")[0] == "help" and key in (*KINDS, "loss"):
            name = last.partition("=")[2] or (after if after and not after.startswith("-") else "")
            return keys_of(key, name) if name else kinds_of(key)
    return None


def page() -> str:
    """Format needed options, the others with defaults and short explanations, and examples."""
    text = files("rerank.commands").joinpath("train.txt").read_text("utf-8").rstrip()
    options = {field.name: _default(field) for field in fields(TrainConfig)}
    rates = {field.name: _default(field) for field in fields(Optimization)}
    text = text.format_map(options | {"optimization": Namespace(**rates)})
    return re.sub(r"(?m)^(  --[\w.]+ (?:\"[^\"]*\"|\S+))  (?=\S)", lambda line: f"{line[1]:<39}", text)


def kinds_of(key: str) -> str:
    """List the classes that a key takes, a line each."""
    if key == "loss":
        return show("losses")
    lines = [f"  {name:<20} {text.replace('``', '')}" for name, text in first_lines(loaded(KINDS[key])).items()]
    return "\n".join([*lines, "", f"rerank train --{key}.help NAME lists the keys of one of them."])


def keys_of(key: str, name: str) -> str:
    """Describe the keys of a class with their defaults, or a loss."""
    if key == "loss":
        return explain(name)
    if "." not in name and name not in KINDS[key]:
        raise UserError(f"--{key}: there is no {name}{nearest(name, KINDS[key])}; --{key}.help lists them")
    kind = find_class(name if "." in name else f"{KINDS[key][name]}.{name}", object, key)
    parser = make_parser(f"train --{key} {name}", kind)
    parser.add_class_arguments(kind, key, as_group=False)
    return help_page(parser)


def _default(field: Field[Any]) -> str:
    """Write a default as it is typed."""
    value = field.default if field.default_factory is MISSING else field.default_factory()
    if isinstance(value, str):
        return f'"{value}"' if " " in value else value
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, int | float) else type(value).__name__
