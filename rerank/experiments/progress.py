"""How far an experiment is: a line per cell."""

from __future__ import annotations

import logging
import time

from rerank.experiments.cells import Cell

log = logging.getLogger("rerank")


class Progress:
    """Counts cells and says what came of each."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._done = self._before = 0
        self._started = time.perf_counter()

    def trained(self, cell: Cell, value: float, seconds: float, before: bool) -> None:
        """Note a trained cell; one that was finished before the experiment began is not said."""
        self._done += 1
        self._before += before
        if not before:
            self._say("%s: validation %s %.4f (%.1f s%s)", cell, cell.monitor, value, seconds, self._left())

    def failed(self, cell: Cell, message: str) -> None:
        self._done += 1
        self._say("failed: %s: %s", cell, message)

    def _left(self) -> str:
        """The time that the others would take at the pace of those that were trained."""
        if self._done >= self.total:
            return ""
        pace = (time.perf_counter() - self._started) / (self._done - self._before)
        minutes, seconds = divmod(round(pace * (self.total - self._done)), 60)
        return f"; {minutes // 60}:{minutes % 60:02}:{seconds:02} left"

    def _say(self, message: str, *values: object) -> None:
        log.info("[%d/%d] " + message, self._done, self.total, *values)
