"""The ``rerank`` command: a function per command, its options read off its signature."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from rerank import __version__, tasks
from rerank.commands.candidates import add, export, lists, retrieve
from rerank.commands.catalogue import collections, losses, measures, models
from rerank.commands.comparisons import compare, evaluate, experiment, verify
from rerank.commands.exits import exiting
from rerank.commands.pages import PAGES
from rerank.commands.rankers import auto, calibrate, rerank, train
from rerank.errors import UserError, nearest
from rerank.serving.server import serve
from rerank.settings.help import EMPTY
from rerank.settings.named import find_own_classes
from rerank.settings.parser import options_of


def demo(output: str = "demo", ask: str | None = None) -> None:
    """Search the Python standard library, from BM25 to a first table.

    Retrieves, trains, reranks, compares with BM25 and answers a question.

    Args:
        output: folder for lists, models, runs and logs; what is there already is not done again.
        ask: a question to answer, such as "how do I flatten a list of lists".
    """
    from rerank.demo import run_demo

    run_demo(Path(output), ask)


GROUPS: dict[str, tuple[Callable[..., Any], ...]] = {
    "start": (demo, auto),
    "candidates": (retrieve, lists, add, export),
    "rankers": (train, tasks.average, calibrate, rerank, serve),
    "comparisons": (evaluate, compare, experiment, verify),
    "what there is": (losses, measures, models, collections),
}
"""The commands, as their list shows them."""

COMMANDS = {command.__name__: command for group in GROUPS.values() for command in group}


def usage() -> str:
    """The commands, a line each."""
    lines = ["usage: rerank COMMAND [OPTIONS]", ""]
    lines += ["Train rerankers on whole ranked lists, and know whether they beat what you have."]
    for head, commands in GROUPS.items():
        lines += ["", head]
        lines += [f"  {command.__name__:<12}{(command.__doc__ or '').splitlines()[0]}" for command in commands]
    return "\n".join([*lines, "", "rerank COMMAND --help explains a command; rerank --version prints the version."])


def run(argv: Sequence[str]) -> None:
    """Run one command, and print the text that it returns."""
    find_own_classes()
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
    elif argv[0] == "--version":
        print(__version__)
    elif argv[0] not in COMMANDS:
        raise UserError(f"{argv[0]}: no such command{nearest(argv[0], COMMANDS)}; see rerank --help")
    elif argv[0] in ("train", "experiment"):
        COMMANDS[argv[0]](argv[1:])
    else:
        name, *words = argv
        page = PAGES.get(name, EMPTY)
        if page.plain and not words and signature(COMMANDS[name]).parameters[page.plain].default is Parameter.empty:
            raise UserError(f"FOLDER: needed; see rerank {name} --help")
        if page.plain and words and not words[0].startswith("-"):
            words[0] = f"--{page.plain}={words[0]}"
        with options_of(COMMANDS[name], words, page) as options:
            if isinstance(said := COMMANDS[name](**options), str):
                print(said)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the ``rerank`` command."""
    with exiting() as end:
        run(sys.argv[1:] if argv is None else argv)
    return end.code


if __name__ == "__main__":
    sys.exit(main())
