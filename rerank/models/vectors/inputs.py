"""Feature vectors as networks read them: normalised once, held in memory (or on the GPU), selected by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rerank.arrow import Array, blocks
from rerank.errors import UserError
from rerank.kernels.packing import pack
from rerank.models.base import Inputs

if TYPE_CHECKING:
    from rerank.features.normalise import Normaliser
    from rerank.lists.store import Lists

ROWS = 65_536
"""Rows normalised at a time."""


def width(lists: Lists) -> int:
    """The number of features of lists.

    Raises:
        UserError: they hold texts.
    """
    if lists.features is None:
        raise UserError(f"{lists.folder}: holds texts, not feature vectors; use a CrossEncoder")
    return int(lists.features.shape[1])


class FeatureInputs(Inputs):
    """The vectors of some lists as one tensor ``[T, F]``.

    Args:
        lists: lists with features.
        normalisers: what is done to them, in this order; fitted.
        features: the number of features that the model has seen.
        device: where the tensor lies.

    Raises:
        UserError: texts in place of features, or another number of them.
    """

    def __init__(self, lists: Lists, normalisers: Sequence[Normaliser], features: int, device: torch.device) -> None:
        if (found := width(lists)) != features:
            raise UserError(f"{lists.folder}: has {found} features, the model was trained on {features}")
        assert lists.features is not None
        values = np.empty((len(lists.documents), features), dtype=np.float32)
        for first, last in blocks(lists.offsets, ROWS):
            start, end = int(lists.offsets[first]), int(lists.offsets[last])
            block = np.asarray(lists.features[lists.documents[start:end]], dtype=np.float32)
            offsets = lists.offsets[first : last + 1] - start
            for normaliser in normalisers:
                block = normaliser.apply(block, offsets)
            values[start:end] = block
        self.values = torch.from_numpy(values).to(device)
        self._place = np.full(len(lists.features), -1, dtype=np.int64)  # row in the store -> row here
        self._place[lists.documents] = np.arange(len(lists.documents))

    def lengths(self, queries: Array, documents: Array) -> Array:
        """One row each."""
        return np.ones(len(documents), dtype=np.int64)

    def collate(self, queries: Array, documents: Array) -> dict[str, Tensor]:
        """``features``: ``[n, F]``."""
        rows = torch.from_numpy(self._place[documents])
        return {"features": self.values.index_select(0, rows.to(self.values.device, non_blocking=True))}


class ListInputs(FeatureInputs):
    """The same for models that look at the whole list: consecutive pairs of one query are a list."""

    def chunks(self, queries: Array, documents: Array, budget: int) -> list[Array]:
        """Whole lists, of similar length."""
        starts, lengths = _runs(queries)
        return [
            np.concatenate([np.arange(starts[i], starts[i] + lengths[i]) for i in chosen])
            for chosen in pack(lengths, budget)
        ]

    def collate(self, queries: Array, documents: Array) -> dict[str, Tensor]:
        """``features``: ``[B, N, F]`` padded with zeros, and ``mask``: ``[B, N]``."""
        _, lengths = _runs(queries)
        flat = super().collate(queries, documents)["features"]
        mask = torch.from_numpy(np.arange(int(lengths.max())) < lengths[:, None]).to(flat.device)
        padded = flat.new_zeros((*mask.shape, flat.shape[1])).masked_scatter_(mask[:, :, None], flat)
        return {"features": padded, "mask": mask}


def _runs(queries: Array) -> tuple[Array, Array]:
    """Start and length of every run of equal values."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(queries)) + 1])
    return starts, np.diff([*starts, len(queries)])
