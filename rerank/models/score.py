"""Scoring pairs and lists without a graph."""

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


def score_pairs(
    scorer: Scorer,
    inputs: Inputs,
    queries: Array,
    documents: Array,
    *,
    budget: int | None = None,
    precision: Precision = "auto",
    progress: str | None = None,
) -> Array:
    """Score pairs without a graph, in evaluation mode.

    Args:
        scorer: the model.
        inputs: what ``scorer.inputs`` made of the lists.
        queries: ``[n]`` rows of queries in the store.
        documents: ``[n]`` rows of documents in the store.
        budget: rows of its matrix products (padded tokens, feature vectors) per forward pass; None for its own.
        precision: arithmetic of the encoder.
        progress: what a progress bar says; None shows none.

    Returns:
        ``[n]`` float32, in the order given.
    """
    assert isinstance(scorer, torch.nn.Module)
    device = next(scorer.parameters()).device
    precision, _ = resolve(precision, device, scorer.bf16)
    scores = np.empty(len(queries), dtype=np.float32)
    training = scorer.training
    scorer.eval()
    bar = tqdm(total=len(queries), desc=progress, unit=" documents", disable=None if progress else True, leave=False)
    try:
        with bar, torch.inference_mode(), autocast(precision, device):
            for chunk in inputs.chunks(queries, documents, budget or scorer.budget):
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
