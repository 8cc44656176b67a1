"""Scoring lists that the processes of a training share."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import torch.distributed as dist

from rerank import stops
from rerank.arrow import Array
from rerank.kernels.precision import Precision, on_cpu, resolve
from rerank.lists.view import Lists
from rerank.models.base import Inputs, Model
from rerank.models.score import score_lists
from rerank.models.scorer import Scorer
from rerank.stops import Stopped

Score = Callable[[Lists, str], Array]
"""Gives a score per candidate of lists of this name, in every process."""


def score_shared(
    model: Scorer,
    inputs: Inputs,
    lists: Lists,
    *,
    precision: Precision,
    budget: int | None,
    progress: str | None = None,
) -> Array:
    """Scores of every candidate, ``[T]`` float32, in every process; each process scores every n-th list.

    Raises:
        Stopped: a signal came to one of the processes of a training; all of them stop.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return score_lists(model, inputs, lists, precision=precision, budget=budget, progress=progress)
    process, processes = dist.get_rank(), dist.get_world_size()
    mine = lists.select(np.arange(process, len(lists), processes))
    shown = progress if process == 0 else None
    scores: Array | None = None
    with suppress(Stopped):  # the others may have got no signal: they learn of it where the parts are joined
        scores = score_lists(model, inputs, mine, precision=precision, budget=budget, progress=shown)
    parts: list[Array | None] = [None] * processes
    dist.all_gather_object(parts, scores)
    if any(part is None for part in parts):
        raise Stopped(stops.asked() or signal.SIGTERM)
    whole = np.empty(lists.size, dtype=np.float32)
    for part, values in enumerate(parts):
        assert values is not None
        rows = lists.select(np.arange(part, len(lists), processes))
        starts = np.repeat(lists.offsets[part:-1:processes], rows.lengths)
        whole[starts + np.arange(len(values)) - np.repeat(rows.offsets[:-1], rows.lengths)] = values
    return whole


def scores_by(model: Model, precision: Precision, budget: int | None) -> Score:
    """Scoring by a trained model, on the device of this process."""
    if not isinstance(model, Scorer):  # trees
        return lambda lists, name: model.predict(lists)
    from accelerate import PartialState

    state = PartialState(cpu=on_cpu())
    model.to(state.device)
    resolved, _ = resolve(precision, state.device, model.bf16)

    def score(lists: Lists, name: str) -> Array:
        with state.main_process_first():  # one process fills the token cache, the others find it
            inputs = model.inputs(lists)
        return score_shared(model, inputs, lists, precision=resolved, budget=budget, progress=f"{name} lists")

    return score
