"""Processes of a launcher, one for each GPU, which end together."""

from __future__ import annotations

import atexit
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

from rerank import stops
from rerank.errors import UserError, one_line
from rerank.kernels.precision import on_cpu
from rerank.stops import Stopped

PATIENCE = timedelta(days=7)
"""Time that a process waits for the others: their shares of millions of lists may take hours longer."""


@contextmanager
def together() -> Iterator[None]:
    """Run a block in every process; if one of them fails, all raise at the end of the block, with the same line.

    Within the block, processes must not communicate.

    Raises:
        Stopped: a signal came to one of them, and none failed.
    """
    error: BaseException | None = None
    try:
        yield
    except (Exception, Stopped) as raised:
        error = raised
    known = error is None or isinstance(error, UserError | Stopped)
    if dist.is_available() and dist.is_initialized():
        who = "" if known else f"process {dist.get_rank()}: {type(error).__name__}: "
        mine = None if error is None else (isinstance(error, Stopped), who + one_line(error))
        failures = [mine] * dist.get_world_size()
        dist.all_gather_object(failures, mine)
        lines = [line for stopped, line in filter(None, failures) if not stopped]
        if lines and known:
            raise UserError(lines[0]) from error
        if any(failures) and known:
            raise Stopped(stops.asked() or signal.SIGTERM)
    if error is not None:
        raise error


@contextmanager
def group() -> Iterator[bool]:
    """Form a group of the processes that a launcher started, here or on other machines.

    Yields True in the process that writes the results.
    """
    from accelerate import PartialState

    state = PartialState(cpu=on_cpu(), timeout=PATIENCE)
    yield state.is_main_process
    state.wait_for_everyone()


@atexit.register
def leave() -> None:
    """End the group with the process, not with a task: Accelerate makes none anew, so the next task needs it."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
