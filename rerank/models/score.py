"""Scoring pairs and lists without a graph."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import torch
from tqdm import tqdm

from rerank.errors import UserError
from rerank.lists.ragged import Array
from rerank.models.base import Inputs, Scorer
from rerank.models.memory import out_of_memory
from rerank.models.precision import Precision, autocast, resolve

if TYPE_CHECKING:
    from rerank.lists.store import Lists

log = logging.getLogger("rerank")


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

    Where memory runs out, what is left is cut into chunks of half the size, with a warning.

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

    Raises:
        UserError: memory runs out with one pair at a time.
    """
    assert isinstance(scorer, torch.nn.Module)
    device = next(scorer.parameters()).device
    precision, _ = resolve(precision, device, scorer.bf16)
    scores = np.empty(len(queries), dtype=np.float32)
    training = scorer.training
    scorer.eval()
    budget = budget or scorer.budget
    left = np.arange(len(queries))
    bar = tqdm(total=len(queries), desc=progress, unit=" documents", disable=None if progress else True, leave=False)
    try:
        with bar, torch.inference_mode(), autocast(precision, device):
            while len(left):
                chunks, scored = [left[chunk] for chunk in inputs.chunks(queries[left], documents[left], budget)], 0
                try:
                    for chunk in chunks:
                        batch = inputs.collate(queries[chunk], documents[chunk])
                        batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
                        scores[chunk] = scorer.score(batch).cpu().numpy()
                        bar.update(len(chunk))
                        scored += 1
                except (RuntimeError, MemoryError) as error:
                    if not out_of_memory(error):
                        raise
                left = np.sort(np.concatenate([left[:0], *chunks[scored:]]))
                if len(left):  # the error is gone, and with it what its frames held
                    lengths = inputs.lengths(queries[chunks[scored]], documents[chunks[scored]])
                    budget = _smaller(budget, lengths, device)
    finally:
        scorer.train(training)
    return scores


def _smaller(budget: int, lengths: Array, device: torch.device) -> int:
    """A budget below that with which a chunk of pairs of these lengths did not fit."""
    longest = int(lengths.max())
    if len(lengths) == 1 or budget <= longest:
        raise UserError(f"out of memory with one document at a time (size {longest}); shorten the documents")
    if device.type == "cuda":
        torch.cuda.empty_cache()
    budget = max(longest, min(budget, int(lengths.sum())) // 2)
    log.warning("out of memory: a budget of %d for what is left", budget)
    return budget


def score_lists(scorer: Scorer, inputs: Inputs, lists: Lists, **options: object) -> Array:
    """Scores of every candidate of the lists, ``[T]`` float32; options as for :func:`score_pairs`."""
    queries = np.repeat(lists.query_rows, lists.lengths)
    return score_pairs(scorer, inputs, queries, lists.documents, **options)  # type: ignore[arg-type]
