"""Scoring: pairs sorted by length, packed by token budget, largest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from tqdm import tqdm

from rerank.lists.ragged import Array
from rerank.models.base import Inputs, Scorer
from rerank.models.precision import Precision, autocast, resolve

if TYPE_CHECKING:
    from rerank.lists.store import Lists

BUDGET = 8192
"""Padded tokens per forward pass; the time per token is flat around it on a CPU, and memory is small."""

ENOUGH = 8
"""A chunk has at least this part (an eighth) of the budget before it ends for the sake of shorter pairs."""


def pack(lengths: Array, budget: int) -> list[Array]:
    """Cut pairs into chunks of similar length.

    A chunk ends where the budget does, or earlier where what follows is shorter by a quarter and there are enough
    tokens for a matrix product to be efficient: padding costs as much as text.

    Args:
        lengths: ``[n]`` tokens of every pair.
        budget: padded tokens of a chunk at most (a single longer pair is a chunk of its own).

    Returns:
        Chunks of positions into ``lengths``, longest first (so that a lack of memory shows at once); every position
        is in one chunk. Deterministic: ties keep their order.
    """
    order = np.argsort(-lengths, kind="stable")
    chunks, start = [], 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        chunk = order[start : start + max(1, budget // longest)]
        enough = max(1, budget // ENOUGH // longest)
        shorter = np.flatnonzero(lengths[chunk] < 0.75 * longest)
        if len(shorter):
            chunk = chunk[: max(enough, int(shorter[0]))]
        chunks.append(chunk)
        start += len(chunk)
    return chunks


def score_pairs(
    scorer: Scorer,
    inputs: Inputs,
    queries: Array,
    documents: Array,
    *,
    budget: int = BUDGET,
    precision: Precision = "auto",
    progress: str | None = None,
) -> Array:
    """Score pairs without a graph, in evaluation mode.

    Args:
        scorer: the model.
        inputs: what ``scorer.inputs`` made of the lists.
        queries: ``[n]`` rows of queries in the store.
        documents: ``[n]`` rows of documents in the store.
        budget: padded tokens per forward pass.
        precision: arithmetic of the encoder.
        progress: what a progress bar says; None shows none.

    Returns:
        ``[n]`` float32, in the order given.
    """
    assert isinstance(scorer, torch.nn.Module)
    device = next(scorer.parameters()).device
    precision, _ = resolve(precision, device)
    scores = np.empty(len(queries), dtype=np.float32)
    training = scorer.training
    scorer.eval()
    bar = tqdm(total=len(queries), desc=progress, unit=" documents", disable=None if progress else True, leave=False)
    try:
        with bar, torch.inference_mode(), autocast(precision, device):
            for chunk in pack(inputs.lengths(queries, documents), budget):
                batch = inputs.collate(queries[chunk], documents[chunk])
                batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
                scores[chunk] = scorer.score(batch).cpu().numpy()
                bar.update(len(chunk))
    finally:
        scorer.train(training)
    return scores


def score_lists(scorer: Scorer, inputs: Inputs, lists: Lists, **options: object) -> Array:
    """Scores of every candidate of the lists, ``[T]`` float32; options as for :func:`score_pairs`."""
    queries = np.repeat(lists.query_rows, lists.lengths)
    return score_pairs(scorer, inputs, queries, lists.documents, **options)  # type: ignore[arg-type]
