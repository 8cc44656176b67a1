"""Pairs of token ids as a cross-encoder's input."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rerank.kernels.flat import can_share, flatten, lay, on_cpu
from rerank.kernels.packing import fill
from rerank.lists.tokens import Tokens
from rerank.models.base import Inputs
from rerank.models.text.template import PairTemplate
from rerank.storage.arrow import Array, ranges

SHARED = 1 / 8
"""Share of a chunk's tokens from which on it pays to have a common beginning once; attention is slower then."""


class PairInputs(Inputs):
    """Queries and documents as token ids without special tokens; each pair is one row."""

    def __init__(self, tokens: Tokens, query: Array, document: Array, template: PairTemplate) -> None:
        self.queries, self.documents, self.template = tokens.queries, tokens.documents, template
        self.query_lengths, self.document_lengths = tokens.query_lengths, tokens.document_lengths
        self.query, self.document = query, document

    def lengths(self, rows: Array) -> Array:
        lengths = self.query_lengths[self.query[rows]] + self.document_lengths[self.document[rows]]
        return lengths + self.template.special

    def collate(self, rows: Array, starts: Array) -> dict[str, Tensor]:
        """Padded ``input_ids``, ``attention_mask`` and, where the model has them, ``token_type_ids``."""
        return self.join([self.queries[q] for q in self.query[rows]], [self.documents[d] for d in self.document[rows]])

    def flat(self, rows: Array, network: Any) -> dict[str, Any]:
        """The same tokens end to end, as the network reads them; none is padded before."""
        query, document = self.query[rows], self.document[rows]
        lengths = np.stack([self.query_lengths[query], self.document_lengths[document]], axis=1)
        ids, types = self.template.end_to_end(self.queries.take(query), self.documents.take(document), lengths)
        shared = self._shared(query, lengths) if can_share(network) else 0
        tokens = {"input_ids": torch.from_numpy(ids)}
        if types is not None:
            tokens["token_type_ids"] = torch.from_numpy(types)
        totals = lengths.sum(1) + self.template.special
        places = torch.from_numpy(ranges(np.zeros_like(totals), totals))
        return lay(tokens, places, torch.from_numpy(totals), network, shared)

    def _shared(self, query: Array, lengths: Array) -> int:
        """With how many tokens all pairs begin, where that pays; each of them has a token that is its own."""
        totals, same = lengths.sum(1) + self.template.special, len(self.template.prefix)
        if (query == query[0]).all():
            same += int(lengths[0, 0]) + len(self.template.middle)
        same = min(same, int(totals.min()) - 1)
        return same if same * (len(query) - 1) >= SHARED * totals.sum() else 0

    def join(self, queries: list[Array], documents: list[Array]) -> dict[str, Tensor]:
        return {name: torch.from_numpy(array) for name, array in self.template.join(queries, documents).items()}


class FlatInputs(Inputs):
    """The rows of other inputs, flat."""

    def __init__(self, padded: Inputs, network: Any) -> None:
        self.inner, self.network = padded, network

    def lengths(self, rows: Array) -> Array:
        return self.inner.lengths(rows)

    def collate(self, rows: Array, starts: Array) -> dict[str, Any]:
        if type(self.inner) is PairInputs:
            return self.inner.flat(rows, self.network)
        return flatten(self.inner.collate(rows, starts), self.network)

    def chunks(self, rows: Array, starts: Array, budget: int) -> list[Array]:
        """As full as they can be where a GPU waits for launches; of similar lengths on a CPU, which attends to runs."""
        cut = self.inner.chunks
        return cut(rows, starts, budget) if on_cpu(self.network) else fill(self.lengths(rows), budget)
