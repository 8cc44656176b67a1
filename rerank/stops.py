"""Ctrl-C and SIGTERM: a first one lets a training finish its step and write a checkpoint, a second leaves at once."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

log = logging.getLogger("rerank")

SIGNALS = (signal.SIGINT, signal.SIGTERM)

ONE_PRESS = 1.0
"""Signals within so many seconds of the first are the same one: a terminal sends Ctrl-C to torchrun and to what it
started, and torchrun passes it on to them."""


class Stopped(KeyboardInterrupt):
    """A signal asked the process to stop, and it did; ``said`` is what was reached and how to resume, if known.

    After a second one it stopped ``at_once``, wherever it was.
    """

    def __init__(self, number: int, said: str = "", at_once: bool = False) -> None:
        super().__init__(said or f"stopped by {name_of(number)}")
        self.number, self.said, self.at_once = number, said, at_once


class _Stops:
    """What signals came to this process."""

    def __init__(self) -> None:
        self.finishing = False  # whether work comes to a good end before it stops
        self.asked: int | None = None
        self.at = 0.0
        self.command = False  # whether this is a command, so that the whole process may end

    def handle(self, number: int, _: FrameType | None) -> None:
        if self.asked is not None and time.monotonic() - self.at < ONE_PRESS:
            return
        again = self.asked is not None
        if not again:
            self.asked, self.at = number, time.monotonic()
            if self.finishing:
                log.warning("%s: finishing this step and saving; once more to leave at once", name_of(number))
                return
        elif self.command:
            os.write(2, b"rerank: left at once; what was under way is lost\n")
            os._exit(128 + number)
        raise Stopped(number, at_once=again)


_stops = _Stops()


def name_of(number: int) -> str:
    """A signal as people know it.

    >>> name_of(2), name_of(15)
    ('Ctrl-C', 'SIGTERM')
    """
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def asked() -> int | None:
    """The signal that asks this process to stop at the next good point, if one came."""
    return _stops.asked if _stops.finishing else None


def came() -> bool:
    """Whether a signal came at all since this process listens."""
    return _stops.asked is not None


def check() -> None:
    """Stop here (`Stopped`), if a signal asks for it; for places that lose nothing by it."""
    if (number := asked()) is not None:
        raise Stopped(number)


@contextmanager
def listening(command: bool = False) -> Iterator[None]:
    """Turn the signals into `Stopped` while the block runs.

    Only where Python's own handlers are in place, so that a program's handlers stay, and only in the main thread, as
    Python has it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    free = (signal.SIG_DFL, signal.default_int_handler)
    ours = [number for number, handler in before.items() if handler in free]
    _stops.asked = None if ours else _stops.asked
    told, _stops.command = _stops.command, command or _stops.command
    for number in ours:
        signal.signal(number, _stops.handle)
    try:
        yield
    finally:
        _stops.command = told
        for number in ours:
            signal.signal(number, before[number])


@contextmanager
def finishing() -> Iterator[None]:
    """While the block runs the first signal is only noted: the block asks `asked` where to stop, else at its end."""
    with listening():
        before, _stops.finishing = _stops.finishing, True
        try:
            yield
            check()
        finally:
            _stops.finishing = before
