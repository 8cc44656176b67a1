"""Measuring a model on lists, the lists shared between the processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch.distributed as dist

from rerank.evaluation.measures import evaluate
from rerank.lists.ragged import Array
from rerank.lists.store import Lists
from rerank.models.base import Inputs
from rerank.models.precision import Precision
from rerank.models.score import score_lists

if TYPE_CHECKING:
    from rerank.models.cross_encoder import CrossEncoder


def score_shared(
    model: CrossEncoder,
    inputs: Inputs,
    lists: Lists,
    *,
    precision: Precision,
    budget: int,
    progress: str | None = None,
) -> Array:
    """Scores of every candidate, ``[T]`` float32, in every process; each process scores every n-th list."""
    if not (dist.is_available() and dist.is_initialized()):
        return score_lists(model, inputs, lists, precision=precision, budget=budget, progress=progress)
    process, processes = dist.get_rank(), dist.get_world_size()
    mine = lists.select(np.arange(process, len(lists), processes))
    shown = progress if process == 0 else None
    scores = score_lists(model, inputs, mine, precision=precision, budget=budget, progress=shown)
    parts: list[Array | None] = [None] * processes
    dist.all_gather_object(parts, scores)
    whole = np.empty(len(lists.documents), dtype=np.float32)
    for part, values in enumerate(parts):
        assert values is not None
        rows = lists.select(np.arange(part, len(lists), processes))
        starts = np.repeat(lists.offsets[part:-1:processes], rows.lengths)
        whole[starts + np.arange(len(values)) - np.repeat(rows.offsets[:-1], rows.lengths)] = values
    return whole


def measure(lists: Lists, scores: Array, measures: str) -> dict[str, float]:
    """Means of measures over the lists' judged queries, full qrels, by ir-measures name."""
    assert lists.qrels is not None
    return evaluate(lists.run(scores), lists.qrels, measures, name=str(lists.folder)).mean
