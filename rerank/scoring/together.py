"""Processes of a launcher, one for each GPU, which end together."""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from rerank import stops
from rerank.errors import UserError, one_line
from rerank.kernels.precision import on_cpu
from rerank.progress import log
from rerank.stops import Stopped

PATIENCE = timedelta(days=7)
"""Time that a process waits for the others: their shares of millions of lists may take hours longer."""


Failure = tuple[bool, str]
"""Error of a process as it tells the others: True if it was asked to stop, and the message."""


@contextmanager
def together() -> Iterator[None]:
    """Run a block in every process of a group; each waits at the end for the others.

    Where one process raises, all do, with the same line: none waits for a message that will never be sent. Within the
    block processes must not talk to each other. A process without a group raises what it raises.

    Raises:
        Stopped: a signal came to one of them, and none failed.
    """
    error: BaseException | None = None
    try:
        yield
    except (Exception, Stopped) as raised:
        error = raised
    if dist.is_available() and dist.is_initialized():
        failures: list[Failure | None] = [None] * dist.get_world_size()
        dist.all_gather_object(failures, None if error is None else _failure(error))
        _raise_first(failures, error)
    if error is not None:
        raise error


def _failure(error: BaseException) -> Failure:
    known = isinstance(error, UserError | Stopped)
    said = one_line(error) if known else f"process {dist.get_rank()}: {type(error).__name__}: {one_line(error)}"
    return isinstance(error, Stopped), said


def _raise_first(failures: list[Failure | None], error: BaseException | None) -> None:
    """Raise the first failed process's message; an unexpected error of this process keeps its traceback."""
    reported = [failure for failure in failures if failure is not None]
    if not reported or not (error is None or isinstance(error, UserError | Stopped)):
        return
    if failed := [message for stopped, message in reported if not stopped]:
        raise error if isinstance(error, UserError) and one_line(error) == failed[0] else UserError(failed[0])
    raise Stopped(stops.asked() or signal.SIGTERM)


def check_gpus() -> None:
    """Refuse more processes than GPUs on this machine; tell about idle GPUs."""
    processes, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if 0 < gpus < processes:
        raise UserError(
            f"LOCAL_WORLD_SIZE: {processes} processes on a machine with {gpus} GPUs; start one for each (accelerate "
            "launch: --num_processes, over all machines; torchrun: --nproc_per_node)"
        )
    if processes < gpus and os.environ.get("RANK", "0") == "0":
        log.info("%d of %d GPUs are used; configs/accelerate/gpus.yaml starts a process for each", processes, gpus)


@contextmanager
def group() -> Iterator[bool]:
    """Form a group of the processes that a launcher started, here or on other machines.

    Yields True in the process that writes the results.
    """
    from accelerate import PartialState

    check_gpus()
    state = PartialState(cpu=on_cpu(), timeout=PATIENCE)
    yield state.is_main_process
    if state.num_processes > 1:
        state.wait_for_everyone()


@atexit.register
def leave() -> None:
    """End the group with the process, not with a task: Accelerate makes none anew, so the next task needs it."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
