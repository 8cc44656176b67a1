"""Ctrl-C and SIGTERM: the first lets a training run finish its step and write a checkpoint, a second stops at once."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

log = logging.getLogger("rerank")

SIGNALS = (signal.SIGINT, signal.SIGTERM)

ONE_PRESS = 1.0
"""Seconds within which signals count as one: torchrun passes a Ctrl-C on to processes that have received it already."""


class Stopped(KeyboardInterrupt):
    """A signal stopped the process.

    Attributes:
        number: number of the signal.
        said: the progress so far, and how to resume, if known.
        at_once: whether a second signal came, so that no step was finished.
    """

    def __init__(self, number: int, said: str = "", at_once: bool = False) -> None:
        super().__init__(said or f"stopped by {name_of(number)}")
        self.number, self.said, self.at_once = number, said, at_once


class _Signals:
    """Signals that this process has received."""

    def __init__(self) -> None:
        self.finishing = False  # whether work finishes a step before it stops
        self.asked: int | None = None
        self.at = 0.0

    def handle(self, number: int, _: FrameType | None) -> None:
        again = self.asked is not None
        if again and time.monotonic() - self.at < ONE_PRESS:
            return
        if not again:
            self.asked, self.at = number, time.monotonic()
            if self.finishing:
                log.warning("%s: finishing this step and saving; repeat it to stop at once", name_of(number))
                return
        raise Stopped(number, at_once=again)


_signals = _Signals()


def name_of(number: int) -> str:
    """Name a signal.

    >>> name_of(2), name_of(15)
    ('Ctrl-C', 'SIGTERM')
    """
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def asked() -> int | None:
    """Return the signal that asks this process to stop after its step; None without one."""
    return _signals.asked if _signals.finishing else None


def check() -> None:
    """Raise `Stopped` if a signal asks for it; for places that lose nothing by it."""
    if (number := asked()) is not None:
        raise Stopped(number)


@contextmanager
def listening() -> Iterator[None]:
    """Turn signals into `Stopped` while the block runs.

    A program's own handlers stay in place. Python allows handlers in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = [number for number, old in before.items() if old in (signal.SIG_DFL, signal.default_int_handler)]
    if ours:
        _signals.asked = None
    for number in ours:
        signal.signal(number, _signals.handle)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])
        if ours:  # or other threads, which install no handlers, would stop at it later
            _signals.asked = None


@contextmanager
def finishing() -> Iterator[None]:
    """Only note the first signal while the block runs: the block stops where `asked` says so, or at its end."""
    with listening():
        before, _signals.finishing = _signals.finishing, True
        try:
            yield
            check()
        finally:
            _signals.finishing = before
