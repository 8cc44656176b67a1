"""What people see while work goes on: bars, seconds, and what is logged, by the process that speaks."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tqdm import tqdm as terminal

log = logging.getLogger("rerank")


def in_notebook() -> bool:
    """Whether this process answers a notebook's cells: IPython's kernel sits in it."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def tqdm(*args: Any, disable: bool | None = None, **options: Any) -> Any:
    """A bar of tqdm, its arguments the same; none where the logger ``rerank`` is told to be quieter than INFO.

    A notebook's streams are no terminals, so that ``disable=None`` would hide the bar there.

    Args:
        args: as tqdm takes them.
        disable: True for no bar; None for one where somebody can see it move.
        options: as tqdm takes them.
    """
    kind: Any = terminal
    if disable is None and logging.getLogger("rerank").level > logging.INFO:
        disable = True
    if not in_notebook():
        return kind(*args, disable=disable, **options)
    if find_spec("ipywidgets"):
        from tqdm.notebook import tqdm as widget

        kind = widget
    return kind(*args, disable=bool(disable), **options)


def is_main() -> bool:
    """Whether this is the process that speaks and writes, of those that ``torchrun`` started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def _logging_to(handler: logging.Handler) -> Iterator[None]:
    """Log to a handler as well, at the level of a command where the program has set none."""
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
    """Write what is logged to stderr, as a command does, if the program that calls has not configured any logging."""
    with nullcontext() if log.hasHandlers() or not is_main() else _logging_to(logging.StreamHandler()):
        yield


@contextmanager
def log_file(folder: Path) -> Iterator[None]:
    """Write what the command says to ``log.txt`` as well, with the time, once the folder is there."""
    handler = logging.FileHandler(folder / "log.txt", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(lambda _: folder.is_dir())
    with _logging_to(handler):
        yield


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal what is being done, and for how many seconds, where nothing else would move."""
    done = Event()
    with terminal(desc=what, bar_format="{desc} ... {elapsed}", disable=None, leave=False) as bar:

        def tick() -> None:
            while not done.wait(0.5):
                bar.refresh()

        ticking = Thread(target=tick, daemon=True)
        if not bar.disable:
            ticking.start()
        try:
            yield
        finally:
            done.set()
            if not bar.disable:
                ticking.join()
