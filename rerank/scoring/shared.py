"""Scoring lists that the processes of a training share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch.distributed as dist

from rerank.errors import UserError
from rerank.kernels.precision import Precision, on_cpu, resolve
from rerank.lists.view import Lists
from rerank.models.base import Inputs, Model
from rerank.models.score import score_lists
from rerank.models.scorer import Scorer
from rerank.scoring.together import together
from rerank.storage.arrow import Array

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
        UserError: one of them failed; all of them do.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return score_lists(model, inputs, lists, precision=precision, budget=budget, progress=progress)
    process, processes = dist.get_rank(), dist.get_world_size()
    mine = lists.select(np.arange(process, len(lists), processes))
    shown = progress if process == 0 else None
    with together():
        scores = score_lists(model, inputs, mine, precision=precision, budget=budget, progress=shown)
    parts = [scores] * processes
    dist.all_gather_object(parts, scores)
    whole = np.empty(lists.size, dtype=np.float32)
    for part, values in enumerate(parts):
        rows = lists.select(np.arange(part, len(lists), processes))
        starts = np.repeat(lists.offsets[part:-1:processes], rows.lengths)
        whole[starts + np.arange(len(values)) - np.repeat(rows.offsets[:-1], rows.lengths)] = values
    return whole


def check_scoring(model: Model, precision: Precision, budget: int | None) -> None:
    """Refuse what only networks take, of a model that is none.

    Raises:
        UserError: names the option.
    """
    if not isinstance(model, Scorer) and (precision != "auto" or budget is not None):
        key = "token_budget" if precision == "auto" else "precision"
        raise UserError(f"{key}: {type(model).__name__} scores all documents at once, in its own arithmetic")


def scores_by(model: Model, precision: Precision, budget: int | None) -> Score:
    """Scoring by a trained model, on the device of this process."""
    if not isinstance(model, Scorer):  # trees
        return lambda lists, name: model.predict(lists)
    from accelerate import PartialState

    state = PartialState(cpu=on_cpu())
    model.to(state.device)
    resolved, _ = resolve(precision, state.device, model.bf16)

    def score(lists: Lists, name: str) -> Array:
        for turn in (state.is_main_process, not state.is_main_process):  # one fills the token cache, the others find it
            with together():
                if turn:
                    inputs = model.inputs(lists)
        return score_shared(model, inputs, lists, precision=resolved, budget=budget, progress=f"{name} lists")

    return score
