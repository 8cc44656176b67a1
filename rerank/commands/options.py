"""Options of a command, read from its function's signature, and its help."""

from __future__ import annotations

import json
import os
import re
import textwrap
import tomllib
from argparse import SUPPRESS, Action
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rerank.errors import UserError
from rerank.progress import screen
from rerank.settings.arguments import annotations_of
from rerank.settings.parser import make_parser, parse

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

HELP = {"-h", "--help"}
NUMBERS = {"int": "N", "float": "X"}
VALUES = {"per_query": "FILE", "trained_on": "LISTS"}

OWNED = ("fingerprint.json", "trials", "rerank.json")
"""Files and folders that tell a run, an experiment and a model."""


class Page(NamedTuple):
    """Contents of a command's help besides its options.

    Attributes:
        examples: command lines, one a line.
        groups: names of options by heading; the rest come under ``other options``.
        plain: positional options, as in ``rerank lists FOLDER``.
    """

    examples: str = ""
    groups: Mapping[str, Sequence[str]] = {}
    plain: Sequence[str] = ()


EMPTY = Page()
_written = files("rerank.commands").joinpath("pages.toml").read_text("utf-8")
PAGES = {name: Page(**page) for name, page in tomllib.loads(_written).items()}
"""By command; ``rerank train`` has a page of its own."""


def command_parser(function: Callable[..., Any]) -> tuple[ArgumentParser, dict[str, Any]]:
    """Make a parser of a function's parameters, and those of the function that it passes ``**options`` to.

    A parameter that takes a data class becomes one option per field; these are returned by parameter.
    """
    parser = make_parser(function.__name__, function)
    hints = annotations_of(function)
    groups = {key: kind for key, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}
    parser.add_function_arguments(function, as_group=False, skip=set(groups))
    for kind in groups.values():
        parser.add_class_arguments(kind, as_group=False)
    return parser, groups


@contextmanager
def options_of(function: Callable[..., Any], argv: Sequence[str], page: Page = EMPTY) -> Iterator[dict[str, Any]]:
    """Parse a function's arguments; errors of the call name them as they are written in a shell."""
    parser, groups = command_parser(function)
    options = vars(parse(parser, shell_like(parser, argv)))
    named = set(options) - set(page.plain)
    try:
        for key, kind in groups.items():
            options[key] = kind(**{field.name: options.pop(field.name) for field in fields(kind)})
        yield options
    except UserError as error:
        key, colon, problem = str(error).partition(": ")
        if colon and key in named:
            raise UserError(f"{option(key)}: {problem}") from error
        raise


def shell_like(parser: ArgumentParser, argv: Sequence[str]) -> list[str]:
    """Rewrite lists (``--runs A B``) and switches (``--bm25``) as the parser reads them."""
    types = {action.dest: str(getattr(action, "_typehint", action.type)) for action in parser._actions}
    result: list[str] = []
    lists: dict[str, list[str]] = {}  # a repeated option collects all its values
    numbers = set[str]()
    position = 0
    while position < len(argv):
        word = argv[position]
        position += 1
        name, equals, value = word.partition("=")
        hint = types.get(name.removeprefix("--").replace("-", "_"), "") if word.startswith("--") else ""
        values = list(takewhile(lambda value: not value.startswith("--"), argv[position:]))
        is_list = re.match(r"(typing\.)?(Optional\[)?[Ll]ist\[", hint) is not None
        if is_list and not re.fullmatch(r"(?s)\s*(\[.*\]|null)\s*", value or [*values, ""][0]):
            lists.setdefault(name, []).extend([value, *values] if equals else values)
            position += len(values)
            numbers |= {name} if "int" in hint else set()
        elif hint == "<class 'bool'>" and not equals and not values:
            result.append(f"{word}=true")
        else:
            result.append(word)
    for name, values in lists.items():
        result.append(f"{name}=[{', '.join(values)}]" if name in numbers else f"{name}={json.dumps(values)}")
    return result


def option(key: str) -> str:
    """Write an option as in a shell.

    >>> option("model.query_length")
    '--model.query-length'
    """
    return "--" + key.replace("_", "-")


def check_output(path: str | Path) -> None:
    """Raise a UserError for an existing file in the folder of a training run, an experiment or a saved model."""
    file = Path(os.path.realpath(path))
    if file.exists() and any((file.parent / mark).exists() for mark in OWNED):
        raise UserError(f"{path}: would overwrite a file of {Path(path).parent}; name another file")


def help_page(parser: ArgumentParser, page: Page = EMPTY) -> str:
    """Format a command's help: required options, the others in groups, examples; no types, no markup."""
    width = screen()
    shown = {a.dest: a for a in parser._actions if a.help != SUPPRESS and a.dest.rpartition(".")[2] != "help"}
    needed = [key for key, action in shown.items() if action.required]
    written = {key: _value(a) if key in page.plain else f"{option(key)} {_value(a)}" for key, a in shown.items()}
    head, first = ("needed, here or in a file", ["config"]) if "config" in shown else ("needed", needed)
    words = ["usage:", parser.prog, *(written[key] for key in first), *["[OPTIONS]"] * (len(first) < len(shown))]
    lines = textwrap.wrap(" ".join(words), width, subsequent_indent=" " * (len(parser.prog) + 8))
    for paragraph in (parser.description or "").split("\n\n"):
        lines += ["", *textwrap.wrap(without_markup(paragraph), width)]
    groups = {head: needed, **page.groups}
    grouped = {key for keys in groups.values() for key in keys}
    groups["other options" if page.groups else "options"] = [key for key in shown if key not in grouped]
    for name, keys in groups.items():
        there = [key for key in keys if key in shown and (name == head or key not in needed)]
        if there:
            lines += ["", name]
        for key in there:
            lines.append(f"  {written[key]}".rstrip())
            lines += textwrap.wrap(_about(shown[key]), width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    if page.examples:
        lines += ["", "examples", *(f"  {line}" for line in page.examples.splitlines())]
    return "\n".join(lines)


def without_markup(text: str) -> str:
    r"""Remove reStructuredText's roles and quotes; formulas stay in LaTeX.

    >>> without_markup(r"the ``yes_no`` head: :math:`\sigma(s)`")
    'the yes_no head: \\sigma(s)'
    """
    return re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "").replace(".. math::", "  ")


def _value(action: Action) -> str:
    """Write a placeholder for an option's value."""
    hint = str(getattr(action, "_typehint", None) or action.type or "")
    if "Literal[" in hint:
        value = "|".join(re.findall(r"'([^']*)'", hint.partition("Literal[")[2].partition("]")[0]))
    elif "bool" in hint or action.nargs == 0 or action.dest == "print_config":
        return ""
    elif kinds := [letter for kind, letter in NUMBERS.items() if re.search(rf"\b{kind}\b", hint)]:
        value = kinds[0]
    else:
        value = VALUES.get(action.dest) or re.split(r"[._]", action.dest)[-1].upper()
    return f"{value.removesuffix('S')} ..." if "list[" in hint.lower() else value


def _about(action: Action) -> str:
    text, value = " ".join(without_markup(action.help or "").split()).rstrip("."), action.default
    default = ""
    if isinstance(value, str | int | float) and value is not False and value != SUPPRESS:
        default = f" (default {value:g})" if isinstance(value, float) else f" (default {value})"
    return f"{text}.{default}" if text else default.strip()
