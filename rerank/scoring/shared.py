"""Scoring of lists, divided among processes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch.distributed as dist

from rerank.errors import UserError
from rerank.kernels.precision import Precision, on_cpu, resolve
from rerank.lists.view import Lists
from rerank.models.base import Inputs, Model
from rerank.models.columns import check_added
from rerank.models.mixed import Mixed, unmixed
from rerank.models.scorer import Scorer, score_whole
from rerank.models.text.from_texts import TextScorer
from rerank.models.vectors.boosting import Trees
from rerank.scoring.parts import Parts
from rerank.scoring.together import PATIENCE, together
from rerank.storage.arrow import Array

Score = Callable[[Lists, str], Array]
"""Function from lists and their name to a score per candidate, in every process."""


def score_shared(
    model: Model,
    lists: Lists,
    *,
    precision: Precision,
    budget: int | None,
    inputs: Inputs | None = None,
    progress: str | None = None,
    parts: Parts | None = None,
) -> Array:
    """Score every candidate, ``[T]`` float32, in every process.

    Raises:
        Stopped: a signal came to one of the processes of a training; all of them stop.
    """
    lists = model.completed(lists)
    if isinstance(model, Mixed):
        model.check(lists)
    grouped = dist.is_available() and dist.is_initialized()
    process, processes = (dist.get_rank(), dist.get_world_size()) if grouped else (0, 1)
    if parts is None:
        with together():
            inputs = inputs or _texts(model, lists)
            dealt = np.zeros(len(lists), dtype=np.int64)
            if processes > 1:
                ends = np.concatenate([[0], _costs(inputs, lists).cumsum()])[lists.offsets]
                dealt[:] = deal(np.diff(ends), processes)
            mine = lists if processes == 1 else lists.select(dealt == process)
            scores = _scores(model, mine, inputs, precision, budget, None if process else progress)
        return scores if processes == 1 else _gathered(scores, lists, dealt, processes)
    with together():
        inputs = inputs or _texts(model, lists)
        costs, todo = _costs(inputs, lists), parts.missing(progress or "scoring")
    if grouped:  # what is stored meanwhile must not change who does what
        agreed = [todo]
        dist.broadcast_object_list(agreed, src=0)
        todo = agreed[0]
    owners = deal(np.array([parts.cost(part, costs) for part in todo]), processes)
    with together():
        for part in (part for owner, part in zip(owners, todo, strict=True) if owner == process):
            title = f"{progress}, {parts.title(part)}"
            parts.write(part, _scores(model, parts.lists(part), inputs, precision, budget, title))
    return parts.scores()


def _scores(
    model: Model, lists: Lists, inputs: Inputs | None, precision: Precision, budget: int | None, progress: str | None
) -> Array:
    """Score all candidates in this process; added documents do not change the scores of the others."""
    if isinstance(model, Mixed):
        inner = model.model
        alone = None if inner is None else _scores(inner, lists, inputs, precision, budget, progress)
        return model.mixed(lists, alone)
    if isinstance(model, Trees):
        check_added(lists, model.names)
        return model.predict(lists)
    assert isinstance(model, Scorer)
    return score_whole(model, lists, inputs, precision=precision, budget=budget, progress=progress)


def _gathered(scores: Array, lists: Lists, owners: Array, processes: int) -> Array:
    shares = [scores] * processes
    dist.all_gather_object(shares, scores)
    whole = np.empty(lists.size, dtype=np.float32)
    for process, values in enumerate(shares):
        rows = lists.select(owners == process)
        starts = np.repeat(lists.offsets[:-1][owners == process], rows.lengths)
        whole[starts + np.arange(len(values)) - np.repeat(rows.offsets[:-1], rows.lengths)] = values
    return whole


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


def _texts(model: Model, lists: Lists) -> Inputs | None:
    """Tokenise the texts for a network, for all parts at once."""
    scorer = unmixed(model)
    return scorer.inputs(lists) if isinstance(scorer, TextScorer) else None


def _costs(inputs: Inputs | None, lists: Lists) -> Array:
    """Return the cost of every candidate, ``[T]``: its tokens, or 1 for vectors."""
    if inputs is None:
        return np.ones(lists.size, dtype=np.int64)
    rows = lists.row_numbers
    ends = [*range(0, len(rows), 1 << 20), len(rows)]
    costs = [inputs.lengths(rows[start:end]) for start, end in pairwise(ends)]
    return np.concatenate([np.zeros(0, dtype=np.int64), *costs])


def check_scoring(model: Model, precision: Precision, budget: int | None) -> None:
    """Refuse options of networks for other models."""
    if not isinstance(unmixed(model), Scorer) and (precision != "auto" or budget is not None):
        key = "token_budget" if precision == "auto" else "precision"
        raise UserError(f"{key}: {type(model).__name__} scores all documents at once, in its own arithmetic")


def placed(model: Model | None, precision: Precision) -> Precision:
    """Move a model to the device of this process; return the precision of its encoder there."""
    model = unmixed(model)
    if not isinstance(model, Scorer):  # trees, or columns alone
        return "fp32"
    from accelerate import PartialState

    state = PartialState(cpu=on_cpu(), timeout=PATIENCE)
    model.to(state.device)
    return resolve(precision, state.device, model.bf16)[0]


def scores_by(model: Model, precision: Precision, budget: int | None) -> Score:
    """Return a function that scores lists with a trained model, on the device of this process."""
    exact = placed(model, precision)
    return lambda lists, name: score_shared(model, lists, precision=exact, budget=budget, progress=f"{name} lists")
