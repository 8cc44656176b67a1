"""Score lists with a trained model; the processes of a launcher share the work, and end together."""

from __future__ import annotations

import atexit
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import torch.distributed as dist

from rerank import stops
from rerank.errors import UserError, one_line
from rerank.kernels.precision import Precision, on_cpu, resolve
from rerank.lists.view import Lists
from rerank.models.base import Inputs, Model
from rerank.models.load import Interpolated, inner_model
from rerank.models.scorer import Scorer, score_whole
from rerank.stops import Stopped
from rerank.storage.arrow import Array

if TYPE_CHECKING:
    from accelerate import PartialState

PATIENCE = timedelta(days=7)
"""Time that a process waits for the others: their shares of millions of lists may take hours longer."""


def join() -> PartialState:
    """Join the processes that a launcher started, here or on other machines; each has a device."""
    from accelerate import PartialState

    return PartialState(cpu=on_cpu(), timeout=PATIENCE)


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


@atexit.register
def leave() -> None:
    """End the group with the process, not with a task: Accelerate makes none anew, so the next task needs it."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def score_shared(
    model: Model,
    lists: Lists,
    *,
    precision: Precision = "auto",
    budget: int | None = None,
    inputs: Inputs | None = None,
    progress: str | None = None,
) -> Array:
    """Score every candidate, ``[T]`` float32, in every process, on the device of each.

    Args:
        model: the model, which moves to the device.
        lists: the lists.
        precision: precision of the encoder.
        budget: padded tokens (documents, for feature vectors) per forward pass at most; defaults to the model's own.
        inputs: the model's inputs, if they are prepared.
        progress: title of the progress bar.

    Raises:
        Stopped: a signal came to one of the processes of a training run; all of them stop.
    """
    lists = model.completed(lists)
    if isinstance(model, Interpolated):
        model.check(lists)
    precision, scorer = placed(model, precision), inner_model(model)
    state = join()
    process, processes = state.process_index, state.num_processes
    with together():
        if inputs is None and isinstance(scorer, Scorer):
            inputs = scorer.inputs(lists)  # tokenised once, for all processes
        if processes == 1:
            return _scores(model, lists, inputs, precision, budget, progress)
        costs = np.ones(lists.size, np.int64) if inputs is None else inputs.lengths(lists.row_numbers)
        owners = np.array(deal(np.diff(np.concatenate([[0], costs.cumsum()])[lists.offsets]), processes))
        mine = lists.select(owners == process)
        scores = _scores(model, mine, inputs, precision, budget, None if process else progress)
    shares = [scores] * processes
    dist.all_gather_object(shares, scores)
    whole = np.empty(lists.size, dtype=np.float32)
    for owner, values in enumerate(shares):
        whole[np.repeat(owners == owner, lists.lengths)] = values
    return whole


def _scores(
    model: Model, lists: Lists, inputs: Inputs | None, precision: Precision, budget: int | None, progress: str | None
) -> Array:
    """Score all candidates in this process; added documents do not change the scores of the others."""
    if isinstance(model, Interpolated):
        inner = model.model
        alone = None if inner is None else _scores(inner, lists, inputs, precision, budget, progress)
        return model.interpolate(lists, alone)
    if not isinstance(model, Scorer):
        return model.predict(lists)
    return score_whole(model, lists, inputs, precision=precision, budget=budget, progress=progress)


def deal(costs: Array, processes: int) -> list[int]:
    """Assign tasks to processes, the costliest first, each to the process with the least load.

    >>> deal(np.array([3, 1, 5, 2, 2]), 2)
    [1, 1, 0, 1, 0]
    """
    loads, owners = np.zeros(processes), [0] * len(costs)
    for number in np.argsort(-costs, kind="stable").tolist():
        owners[number] = int(loads.argmin())
        loads[owners[number]] += costs[number]
    return owners


def check_scoring(model: Model, precision: Precision, budget: int | None) -> None:
    """Raise if an option of networks is given for another model."""
    if not isinstance(inner_model(model), Scorer) and (precision != "auto" or budget is not None):
        key = "token_budget" if precision == "auto" else "precision"
        raise UserError(f"{key}: {type(model).__name__} scores all documents at once, in its own precision")


def placed(model: Model | None, precision: Precision) -> Precision:
    """Move a model to the device of this process; return the precision of its encoder there."""
    model = inner_model(model)
    if not isinstance(model, Scorer):  # trees, or columns alone
        return "fp32"
    device = join().device
    model.to(device)
    return resolve(precision, device, model.bf16)[0]
