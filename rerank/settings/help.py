"""What ``rerank COMMAND --help`` prints: what is needed, the other options in groups, examples; no types, no markup."""

from __future__ import annotations

import re
import shutil
import textwrap
from argparse import SUPPRESS, Action
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

NUMBERS = {"int": "N", "float": "X"}


class Page(NamedTuple):
    """What a command's help says besides its options."""

    examples: str = ""  # command lines, one a line
    groups: Mapping[str, Sequence[str]] = {}  # names of options by heading; those in none come under ``other options``
    plain: Sequence[str] = ()  # positional options: ``rerank lists FOLDER``


EMPTY = Page()


def option(key: str) -> str:
    """How an option is written: words of a command are joined by hyphens, keys of a configuration stay as they are.

    >>> option("add_relevant"), option("model.query_length")
    ('--add-relevant', '--model.query_length')
    """
    return "--" + (key if "." in key else key.replace("_", "-"))


def screen() -> int:
    """How wide lines may be: as the terminal, or ``COLUMNS``, and 100 at most."""
    return min(shutil.get_terminal_size().columns, 100)


def help_page(prog: str, about: str, actions: Sequence[Action], required: Collection[str], page: Page) -> str:
    """The help of a command, as wide as the terminal, but no wider than 100 columns."""
    width = screen()
    shown = [action for action in actions if action.help != SUPPRESS and action.dest.rpartition(".")[2] != "help"]
    needed = [action.dest for action in shown if action.dest in required]
    in_files = any(action.dest == "config" for action in shown)  # its keys are those of files, underscores and all
    written = {action.dest: _written(action, page.plain, in_files) for action in shown}
    words = [written[key] for key in needed]
    rest = ["[OPTIONS]"] if len(needed) < len(shown) else []
    lines = textwrap.wrap(" ".join(["usage:", prog, *words, *rest]), width, subsequent_indent=" " * (len(prog) + 8))
    for paragraph in about.split("\n\n"):
        lines += ["", *textwrap.wrap(plain_text(paragraph), width)]
    groups = {"needed": needed, **page.groups}
    others = [action.dest for action in shown if not any(action.dest in keys for keys in groups.values())]
    groups["other options" if page.groups else "options"] = others
    by_name = {action.dest: action for action in shown}
    for head, keys in groups.items():
        there = [key for key in keys if key in by_name and (head == "needed" or key not in needed)]
        if there:
            lines += ["", head]
        for key in there:
            lines.append(f"  {written[key]}")
            indent = " " * 6
            lines += textwrap.wrap(_said(by_name[key]), width, initial_indent=indent, subsequent_indent=indent)
    if page.examples:
        lines += ["", "examples", *(f"  {line}" for line in page.examples.splitlines())]
    return "\n".join(lines) + "\n"


def plain_text(text: str) -> str:
    """A docstring's text as a terminal shows it: without reStructuredText's marks, and with a shell's words.

    >>> plain_text("a ``lists`` folder of :class:`Lists`; None takes all.")
    'a lists folder of Lists; default: all.'
    """
    text = " ".join(re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "").split())
    text = re.sub(r"(^|\. )(?:None|Null) (?:takes|is) ", r"\1Default: ", text)
    text = re.sub(r"\b(?:None|null) (?:takes|is) ", "default: ", text)
    return re.sub(
        r"\b(?:None|[Nn]ull) (?=\w)", "without it ", re.sub(r"(^|\. )(?:None|Null) (?=\w)", r"\1Without it ", text)
    )


def _written(action: Action, plain: Sequence[str], in_files: bool) -> str:
    """An option with what stands for its value."""
    value = _value(action)
    name = "--" + action.dest if in_files else option(action.dest)
    return value if action.dest in plain else f"{name} {value}".rstrip()


def _value(action: Action) -> str:
    hint = str(getattr(action, "_typehint", None) or action.type or "")
    text = (action.help or "").lower()
    if "Literal[" in hint:
        value = "|".join(re.findall(r"'([^']*)'", hint.partition("Literal[")[2].partition("]")[0]))
    elif "bool" in hint or action.nargs == 0 or action.dest == "print_config":
        return ""
    elif found := re.match(r"(?:\S+ ){0,2}(folder|file|lists)", text):
        value = {"lists": "FOLDER"}.get(found[1], found[1].upper())
    else:
        kinds = [letter for kind, letter in NUMBERS.items() if re.search(rf"\b{kind}\b", hint)]
        value = kinds[0] if kinds else re.split(r"[._]", action.dest)[-1].upper()
    return f"{value.removesuffix('S')} ..." if "list[" in hint.lower() else value


def _said(action: Action) -> str:
    text, default = plain_text(action.help or "").rstrip("."), _default(action.default)
    if not text:
        return f"(default {default})" if default else ""
    return f"{text}. (default {default})" if default and "default:" not in text.lower() else f"{text}."


def _default(value: Any) -> str:
    if value is None or value is False or value == SUPPRESS or not isinstance(value, str | int | float):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
