"""Lists that do not change, padded once to batches of similar length."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rerank.lists.view import Lists
from rerank.storage.arrow import Array

CELLS = 1 << 20
"""Numbers in the pairwise matrices of a batch at most, unless told otherwise."""


class PaddedLists(NamedTuple):
    """Some lists.

    Attributes:
        lists: their positions, ``[B]``.
        rows: position of each document in the flat arrays, ``[B, N]``; 0 where padded.
        mask: ``[B, N]`` bool, True for real documents.
        labels: ``[B, N]`` float32, 0 where padded.
    """

    lists: Array
    rows: Tensor
    mask: Tensor
    labels: Tensor


def padded_lists(lists: Lists, chosen: Array, cells: int = CELLS) -> list[PaddedLists]:
    """Some lists in padded batches, sorted by length so that little of a batch is padding."""
    lengths = lists.lengths
    chosen = chosen[np.argsort(-lengths[chosen], kind="stable")]
    batches, start = [], 0
    while start < len(chosen):
        longest = max(1, int(lengths[chosen[start]]))
        part = chosen[start : start + max(1, cells // longest**2)]
        mask = np.arange(longest) < lengths[part][:, None]
        rows = np.where(mask, lists.offsets[part][:, None] + np.arange(longest), 0)
        labels = np.where(mask, lists.grades[rows], 0).astype(np.float32)
        batches.append(PaddedLists(part, torch.from_numpy(rows), torch.from_numpy(mask), torch.from_numpy(labels)))
        start += len(part)
    return batches
