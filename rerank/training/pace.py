"""How long a training will take, by the steps that it has done."""

from __future__ import annotations

import time

import torch

FIRST = 5.0
"""Seconds of steps after which the first estimate is made."""

EVERY = 30.0
"""Seconds of steps between estimates, at the least."""


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
        threads, cores = torch.get_num_threads(), self.cores
        if self._hinted or not 1 < threads > 2 * cores:
            return None
        self._hinted = True
        return (
            f"{threads} threads had {cores:.1f} cores on average; if other work keeps the cores busy, stop and start "
            f"again with OMP_NUM_THREADS={max(1, round(cores))} in the environment, which goes on from here"
        )


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> [duration(one) for one in (8.4, 75, 5000, 100_000)]
    ['8 s', '1 min', '1.4 h', '28 h']
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.2g} h"
