"""Progress bars and logging."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm as auto

log = logging.getLogger("rerank")


def tqdm(*args: Any, disable: bool | None = None, **options: Any) -> Any:
    """Make a bar of tqdm, a widget in notebooks; hidden if the level of the logger ``rerank`` is above INFO.

    ``disable=None`` also hides it if nobody can see it move: it is not in a notebook, and stderr is not a terminal.
    """
    kind: Any = auto
    return kind(*args, disable=True if disable is None and log.level > logging.INFO else disable, **options)


def screen() -> int:
    """Return the width of lines: the terminal's, or ``COLUMNS``, and 100 at most."""
    return min(shutil.get_terminal_size().columns, 100)


def is_main() -> bool:
    """Tell if this is the main process of those that ``torchrun`` started, which logs and writes."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def _logging_to(handler: logging.Handler) -> Iterator[None]:
    """Add a handler, and set the level of a command if the program has set none."""
    level = log.level
    log.addHandler(handler)
    log.setLevel(level or (logging.INFO if is_main() else logging.WARNING))
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
        handler.close()


@contextmanager
def heard() -> Iterator[None]:
    """Log to stderr, as a command does, if the calling program has not configured logging."""
    with nullcontext() if log.hasHandlers() or not is_main() else _logging_to(logging.StreamHandler()):
        yield


@contextmanager
def log_file(folder: Path) -> Iterator[None]:
    """Log to ``log.txt``, too, with the time, once the folder exists."""
    handler = logging.FileHandler(folder / "log.txt", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(lambda _: folder.is_dir())
    with _logging_to(handler):
        yield
