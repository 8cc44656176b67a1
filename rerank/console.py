"""What all commands share: options from signatures, one-line errors, exit codes, logging."""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.errors import UserError, nearest

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

log = logging.getLogger("rerank")


def make_parser(name: str, documented: Callable[..., Any]) -> ArgumentParser:
    """An empty parser for ``rerank NAME``, described by the first paragraph of a docstring."""
    from jsonargparse import ArgumentParser

    about = (documented.__doc__ or "").split("\n\n")[0]
    return ArgumentParser(prog=f"rerank {name}", description=about, exit_on_error=False)


def parse(parser: ArgumentParser, argv: Sequence[str]) -> Namespace:
    """Parse, turning what the parser refuses into a one-line :class:`UserError` with the nearest key."""
    from jsonargparse import ArgumentError

    try:
        return parser.parse_args(list(argv))
    except ArgumentError as error:
        raise UserError(_one_line(str(error), parser)) from error


def call(name: str, function: Callable[..., Any], argv: Sequence[str]) -> Any:
    """Run a command whose options are the parameters of a function."""
    parser = make_parser(name, function)
    parser.add_function_arguments(function)
    return function(**vars(parse(parser, argv)))


def _one_line(message: str, parser: ArgumentParser) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    text = " ".join(lines)
    known = [option for action in parser._actions for option in action.option_strings]
    for pattern in (
        r"[Uu]nrecognized arguments: (\S+)",
        r"Key '?([\w.]+)'? is not expected",
        r"Option '([\w.]+)' is not",
    ):
        if found := re.search(pattern, text):
            key = found[1].split("=")[0]
            text += nearest(key if key.startswith("-") else f"--{key}", known).replace(
                "'--", "'" if key[0] != "-" else "'--"
            )
    return f"{text}; see {parser.prog} --help"


@contextmanager
def log_file(folder: Path) -> Iterator[None]:
    """Write what the command says to ``log.txt`` as well, with the time, once the folder is there."""
    handler = logging.FileHandler(folder / "log.txt", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(lambda _: folder.is_dir())
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        handler.close()


def exit_code(command: Callable[[], Any]) -> int:
    """Run a command: 0 done, 2 for what the user can mend (one line on stderr), 1 for a fault of ours."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr, level=logging.WARNING)
    log.setLevel(logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING)
    try:
        command()
    except UserError as error:
        print(f"rerank: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("rerank: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left on device" in str(error):
            print(f"rerank: error: no space left on the disk ({error}); free some and run again", file=sys.stderr)
            return 2
        if isinstance(error, PermissionError | NotADirectoryError | IsADirectoryError):
            print(f"rerank: error: {error.filename}: {error.strerror}", file=sys.stderr)
            return 2
        raise
    return 0
