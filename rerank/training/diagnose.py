"""How close the loss is to what it stands for, during training."""

from __future__ import annotations

import numpy as np
import torch

from rerank.lists.view import Lists
from rerank.losses.direct import DirectMetric
from rerank.relaxations.fidelity import fidelity as closeness
from rerank.storage.arrow import Array
from rerank.training.batches import pad

ELEMENTS = 2**22
"""Rank indicators ``[B, N, N]`` held at a time."""


def fidelity(loss: DirectMetric, lists: Lists, scores: Array) -> dict[str, float]:
    """Means over lists of what :class:`rerank.relaxations.fidelity.Fidelity` says, at these scores.

    Args:
        loss: its relaxation is looked at, and the gap of its measure.
        lists: the lists; those without documents are left out.
        scores: ``[T]`` a score per candidate.

    Returns:
        ``rank_error``, ``gap`` and, for rank indicators, ``sharpness`` and ``hits``.
    """
    sums: dict[str, float] = {}
    order = np.argsort(-lists.lengths, kind="stable")
    order = order[lists.lengths[order] > 0]
    start = 0
    while start < len(order):
        count = max(1, ELEMENTS // int(lists.lengths[order[start]]) ** 2)
        rows = [slice(int(lists.offsets[i]), int(lists.offsets[i + 1])) for i in order[start : start + count]]
        padded, mask = pad([scores[row] for row in rows], torch.float32)
        labels, _ = pad([lists.grades[row] for row in rows], torch.float32)
        found = closeness(loss.relaxation, padded, mask, labels, loss.measure)
        for name, values in vars(found).items():
            if values is not None:
                sums[name] = sums.get(name, 0.0) + float(values.sum())
        start += count
    return {name: total / max(1, len(order)) for name, total in sums.items()}
