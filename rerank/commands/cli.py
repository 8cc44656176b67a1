"""The ``rerank`` command: run a function per command, whose signature gives the options."""

from __future__ import annotations

import errno
import io
import logging
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import takewhile
from typing import Any

from rerank import __version__
from rerank.commands.options import EMPTY, HELP, PAGES, command_parser, help_page, options_of
from rerank.errors import UserError, nearest
from rerank.progress import is_main, log
from rerank.settings.arguments import find_own_classes
from rerank.stops import Stopped, listening, name_of

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space on the disk, none in the quota, a file larger than allowed; Rust libraries say ``(os error N)``."""


GROUPS = {
    "start": dict.fromkeys(("demo", "auto"), "rerank.commands.start"),
    "candidates": dict.fromkeys(("retrieve", "lists", "add"), "rerank.commands.candidates"),
    "rankers": {
        "train": "rerank.commands.train",
        "calibrate": "rerank.tasks.calibrate",
        "rerank": "rerank.commands.rerank",
        "serve": "rerank.serving.server",
    },
    "comparisons": {"evaluate": "rerank.commands.evaluate", "experiment": "rerank.commands.experiment"},
    "reference": {"show": "rerank.commands.show"},
}
"""The module of each command, in the groups of their list; a command imports no other."""

COMMANDS = {name: module for group in GROUPS.values() for name, module in group.items()}


def find_command(name: str) -> Callable[..., Any]:
    """Import the function of a command."""
    command: Callable[..., Any] = getattr(import_module(COMMANDS[name]), name)
    return command


def usage() -> str:
    """List the commands, a line each."""
    lines = ["usage: rerank COMMAND [OPTIONS]", ""]
    lines += ["Train BERT-style rerankers on whole ranked lists, with differentiable", "ranking metrics as losses."]
    for head, commands in GROUPS.items():
        lines += ["", head]
        lines += [f"  {name:<12}{(find_command(name).__doc__ or '').splitlines()[0]}" for name in commands]
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
        if find_command(argv[0])(argv[1:]):
            sys.exit(1)
    else:
        name, *words = argv
        command = find_command(name)
        page = PAGES.get(name, EMPTY)
        if HELP & set(words):
            print(help_page(command_parser(command)[0], page))
            return
        if page.plain and not words:
            raise UserError(f"{page.plain[0].upper()}: missing; see rerank {name} --help")
        positional = takewhile(lambda word: not word.startswith("-"), words[: len(page.plain)])
        named = [f"--{key}={word}" for key, word in zip(page.plain, positional, strict=False)]
        words[: len(named)] = named
        with options_of(command, words, page) as options:
            if isinstance(said := command(**options), str):
                print(said)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 2 user error, 130 or 143 stopped by a signal; bugs raise."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr, level=logging.WARNING)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal of another encoding shows what it can
    log.setLevel(logging.INFO if is_main() else logging.WARNING)
    try:
        with listening():
            run(sys.argv[1:] if argv is None else argv)
    except UserError as error:
        print(f"rerank: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
    except Stopped as stop:
        if is_main():
            said = stop.said or f"stopped by {name_of(stop.number)}; repeat the command to finish"
            print(f"rerank: {said}", file=sys.stderr)
        return 128 + stop.number
    except KeyboardInterrupt:
        print("rerank: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if getattr(error, "errno", None) in FULL or any(f"os error {number})" in str(error) for number in FULL):
            print(f"rerank: error: no space left on the disk ({error}); free some and run again", file=sys.stderr)
        elif isinstance(error, OSError) and error.filename is not None and error.strerror:
            print(f"rerank: error: {error.filename}: {error.strerror}", file=sys.stderr)
        else:
            raise
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
