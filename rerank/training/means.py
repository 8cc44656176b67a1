"""What is said of validation lists besides the measures: the mean loss, and how close a relaxation is to sorting."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from rerank.lists.sampling import seed_of
from rerank.lists.view import Lists
from rerank.losses.base import Loss
from rerank.losses.direct import DirectMetric
from rerank.relaxations.fidelity import fidelity
from rerank.storage.arrow import Array
from rerank.training.padded import Padded, PaddedLists

ELEMENTS = 2**22
"""Rank indicators ``[B, N, N]`` held at a time."""


def mean_fidelity(loss: DirectMetric, lists: Lists, scores: Array) -> dict[str, float]:
    """Means over lists of what :class:`rerank.relaxations.fidelity.Fidelity` says, at these scores.

    Returns:
        ``rank_error``, ``gap`` and, for rank indicators, ``sharpness`` and ``hits``.
    """
    sums: dict[str, float] = {}
    for padded, batch in _batches(lists, scores):
        said = fidelity(loss.relaxation, padded, batch.mask, batch.labels, loss.measure)
        for name, values in vars(said).items():
            if values is not None:
                sums[name] = sums.get(name, 0.0) + float(values.sum())
    return {name: total / max(1, int((lists.lengths > 0).sum())) for name, total in sums.items()}


def mean_loss(loss: Loss, lists: Lists, scores: Array, seed: int) -> float:
    """The mean of a loss over the lists that can teach it, at these scores."""
    summed, total, count = copy.copy(loss), 0.0, 0
    summed.reduction = "sum"
    for padded, batch in _batches(lists, scores):
        seeds = torch.tensor([seed_of(seed, 0, lists.query_ids[query]) for query in batch.lists])
        total += float(summed(padded, batch.labels, batch.mask, seeds=seeds))
        count += int(loss.learnable(batch.labels, batch.mask).sum())
    return total / max(1, count)


def _batches(lists: Lists, scores: Array) -> Iterator[tuple[Tensor, PaddedLists]]:
    """The scores of the lists that have candidates, ``[B, N]``, zero where padded, and the lists."""
    flat = torch.from_numpy(scores).float()
    for batch in Padded(lists, np.flatnonzero(lists.lengths > 0), ELEMENTS):
        yield flat[batch.rows].masked_fill(~batch.mask, 0.0), batch
