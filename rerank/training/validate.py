"""Measuring a model on lists, which the processes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch.distributed as dist

from rerank.arrow import Array
from rerank.evaluation.interpolate import interpolate, tune_weight
from rerank.evaluation.measures import evaluate
from rerank.kernels.precision import Precision
from rerank.lists.data import Splits
from rerank.lists.view import Lists
from rerank.models.base import Inputs
from rerank.models.score import score_lists
from rerank.models.scorer import Scorer
from rerank.retrieval.runs import write_run
from rerank.training.run_folder import RunFolder


def score_shared(
    model: Scorer,
    inputs: Inputs,
    lists: Lists,
    *,
    precision: Precision,
    budget: int | None,
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
    whole = np.empty(lists.size, dtype=np.float32)
    for part, values in enumerate(parts):
        assert values is not None
        rows = lists.select(np.arange(part, len(lists), processes))
        starts = np.repeat(lists.offsets[part:-1:processes], rows.lengths)
        whole[starts + np.arange(len(values)) - np.repeat(rows.offsets[:-1], rows.lengths)] = values
    return whole


def finish(
    folder: RunFolder,
    splits: Splits,
    score: Callable[[Lists, str], Array],
    monitor: str,
    measures: str,
    test: bool = True,
    main: bool = True,
) -> dict[str, Any]:
    """Measure the best model on validation and test, with and without the first stage, and write it down.

    Args:
        folder: the run folder; ``test.trec``, ``measures.json`` and the first stage's weight are written there.
        splits: the lists.
        score: gives a score per candidate of lists of this name, in every process.
        monitor: the measure that decides the first stage's weight, on validation.
        measures: further measures.
        test: whether the test lists are measured; nothing else looks at them.
        main: whether this process writes.

    Returns:
        What ``measures.json`` holds: ``{"validation": {...}, "test": {...}, "with_first_stage": {...}}``.
    """
    result: dict[str, Any] = {}
    mixed: dict[str, Any] = {}
    names = f"{monitor} {measures}"
    for name, lists in (("validation", splits.validation), ("test", splits.test if test else None)):
        if lists is None:
            continue
        assert lists.qrels is not None
        run = lists.run(score(lists, name))
        if name == "test" and main:
            write_run(folder.path / "test.trec", run)
        result[name] = evaluate(run, lists.qrels, names, name=name).mean
        if lists.store.order is None:
            continue
        first = lists.run()
        if name == "validation":
            mixed["first_stage_weight"], _ = tune_weight(run, first, lists.qrels, monitor)
        if mixed:
            both = interpolate(run, first, mixed["first_stage_weight"])
            mixed[name] = evaluate(both, lists.qrels, names, name=name).mean
    if mixed:
        result["with_first_stage"] = mixed
    if main:
        if mixed:
            folder.add_to_contract({"first_stage_weight": mixed["first_stage_weight"]})
        if "features" in (manifest := splits.train.store.manifest):
            folder.add_to_contract({"layout": manifest["features"]})
        folder.write_card(splits, result)
        folder.write_measures(result)
    return result
