"""Pairs of token ids as a cross-encoder's input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rerank.arrow import Array, Ragged
from rerank.kernels.flat import flatten
from rerank.models.base import Inputs
from rerank.models.text.template import PairTemplate

if TYPE_CHECKING:
    from torch import Tensor


class PairInputs(Inputs):
    """Queries and documents as token ids without special tokens; each pair is one row.

    Args:
        queries: row -> ids, cut to the query's length.
        documents: row -> ids, cut to the document's length.
        template: how a pair is joined.
    """

    def __init__(self, queries: Any, documents: Any, template: PairTemplate) -> None:
        self.queries, self.documents, self.template = queries, documents, template
        self.query_lengths, self.document_lengths = _lengths(queries), _lengths(documents)

    def lengths(self, queries: Array, documents: Array) -> Array:
        """Tokens of every pair, special ones included."""
        return self.query_lengths[queries] + self.document_lengths[documents] + self.template.special

    def collate(self, queries: Array, documents: Array) -> dict[str, Tensor]:
        """Padded ``input_ids``, ``attention_mask`` and, where the model has them, ``token_type_ids``."""
        return self.join([self.queries[q] for q in queries], [self.documents[d] for d in documents])

    def join(self, queries: list[Array], documents: list[Array]) -> dict[str, Tensor]:
        """Rows of queries with documents, or with chunks of them."""
        import torch

        return {name: torch.from_numpy(array) for name, array in self.template.join(queries, documents).items()}


class FlatInputs(Inputs):
    """The rows of other inputs, flat."""

    def __init__(self, padded: Inputs, network: Any) -> None:
        self.padded, self.network = padded, network

    def lengths(self, queries: Array, documents: Array) -> Array:
        """Tokens of every pair."""
        return self.padded.lengths(queries, documents)

    def collate(self, queries: Array, documents: Array) -> dict[str, Any]:
        """The same tokens end to end."""
        return flatten(self.padded.collate(queries, documents), self.network)

    def chunks(self, queries: Array, documents: Array, budget: int) -> list[Array]:
        """As the others are cut."""
        return self.padded.chunks(queries, documents, budget)


def _lengths(side: Any) -> Array:
    return side.lengths() if isinstance(side, Ragged) else np.array([len(ids) for ids in side], dtype=np.int64)
