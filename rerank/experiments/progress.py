"""How far an experiment is: a live table in a terminal, a line per cell elsewhere."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from rerank.experiments.cells import Cell

if TYPE_CHECKING:
    from rich.table import Table

log = logging.getLogger("rerank")


class Progress:
    """Counts cells per method and shows them."""

    def __init__(self, totals: dict[str, int], live: bool) -> None:
        self.totals = totals
        self.trained: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.measured: Counter[str] = Counter()
        self.running: Counter[str] = Counter()
        self.found = 0  # cells that were finished before
        self._started = time.perf_counter()
        self._live: Any = None
        self._wanted = live

    def __enter__(self) -> Progress:
        if self._wanted:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(get_renderable=self._table, console=Console(stderr=True), refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def start(self, cell: Cell) -> None:
        self.running[cell.group.method] += 1

    def end(self, cell: Cell) -> None:
        self.running[cell.group.method] -= 1

    def add(self, cell: Cell, value: float, seconds: float, found: bool = False) -> None:
        self.trained[cell.group.method] += 1
        self.found += found
        if not found:
            self._say("%s: validation %s %.4f (%.1f s)", cell, cell.monitor, value, seconds)

    def fail(self, cell: Cell, message: str) -> None:
        self.failed[cell.group.method] += 1
        if self._live is not None:
            self._live.console.print(f"failed: {cell}: {message}", style="red", markup=False, highlight=False)
        else:
            self._say("failed: %s: %s", cell, message)

    def measure(self, cell: Cell) -> None:
        self.measured[cell.group.method] += 1

    @property
    def done(self) -> int:
        return self.trained.total() + self.failed.total()

    def left(self) -> str:
        seconds = time.perf_counter() - self._started
        new = self.done - self.found
        total = sum(self.totals.values())
        if not new or self.done >= total:
            return ""
        minutes, rest = divmod(round(seconds / new * (total - self.done)), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{rest:02} left"

    def _say(self, message: str, *values: Any) -> None:
        if self._live is None:
            log.info("[%d/%d] " + message, self.done, sum(self.totals.values()), *values)

    def _table(self) -> Table:
        from rich.table import Table

        table = Table(caption=f"{self.done} of {sum(self.totals.values())} cells {self.left()}".rstrip())
        for name in ("method", "cells", "running", "trained", "failed", "measured on test"):
            table.add_column(name, justify="left" if name == "method" else "right")
        for method, total in self.totals.items():
            counts = (self.running[method], self.trained[method], self.failed[method], self.measured[method])
            table.add_row(method, str(total), *(str(count or "") for count in counts))
        return table
