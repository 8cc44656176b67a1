"""Progress bars and logging."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm as auto

log = logging.getLogger("rerank")

FIRST = 5.0
"""Seconds of steps after which the first estimate is made."""

EVERY = 30.0
"""Seconds of steps between estimates, at the least."""


def tqdm(*args: Any, disable: bool | None = None, **options: Any) -> Any:
    """Make a bar of tqdm, a widget in notebooks; hidden if the level of the logger ``rerank`` is above INFO.

    ``disable=None`` also hides it if nobody can see it move: it is not in a notebook, and stderr is not a terminal.
    """
    return auto(*args, disable=True if disable is None and log.level > logging.INFO else disable, **options)


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


class Pace:
    """Estimates, from the time that steps took, how long the others will.

    The first step is not counted: it allocates, and compiles kernels. Nor is what lies between epochs.
    """

    def __init__(self, steps: int, unit: str = "step") -> None:
        self.steps, self.unit = steps, unit
        self._counted = -1
        self._seconds = self._used = 0.0
        self._due, self._hinted = FIRST, False
        self.begin()

    def begin(self) -> None:
        """Steps follow from here on."""
        self._last = time.perf_counter(), time.process_time()

    def estimate(self, step: int) -> str | None:
        """What to say after a step; None where it is too soon, or too soon after the last time."""
        before = self._last
        self.begin()
        self._counted += 1
        if self._counted:
            self._seconds += self._last[0] - before[0]
            self._used += self._last[1] - before[1]
        if self._seconds < self._due or step >= self.steps:
            return None
        each = self._seconds / self._counted
        self._due = self._seconds + max(EVERY, each * self.steps / 10)
        left = duration(each * (self.steps - step))
        return f"{self.unit} {step} of {self.steps}: the others take about {left} at {each:.3g} s each"

    @property
    def cores(self) -> float:
        """How many of the processor's cores the steps had, on average."""
        return self._used / self._seconds

    def hint_at_threads(self) -> str | None:
        """What to say, once, where threads wait for cores that others use, which costs more time than it saves."""
        import torch

        threads, cores = torch.get_num_threads(), self.cores
        if self._hinted or not 1 < threads > 2 * cores:
            return None
        self._hinted = True
        return (
            f"{threads} threads had {cores:.1f} cores on average; if other work keeps the cores busy, stop and start "
            f"again with OMP_NUM_THREADS={max(1, round(cores))} in the environment, which goes on from here"
        )


def duration(seconds: float) -> str:
    """Format seconds for people.

    >>> [duration(one) for one in (8.4, 75, 5000, 100_000)]
    ['8 s', '1 min', '1.4 h', '28 h']
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.2g} h"
