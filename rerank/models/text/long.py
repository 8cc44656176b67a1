r"""Documents that are longer than a model has positions: cut into chunks, brought together again.

A document of ``l`` tokens goes into :math:`n = \lceil l / M \rceil` chunks of :math:`\lceil l / n \rceil` tokens (the
last may be shorter), where ``M`` is what a row has room for beside the query: equal chunks without overlap, as
MacAvaney et al. 2019 (CEDR) cut. A row is a query with one chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from rerank.errors import UserError
from rerank.kernels.flat import SEQUENCES, rows
from rerank.kernels.packing import pack
from rerank.models.text.pairs import PairInputs
from rerank.storage.arrow import Array

Long = Literal["truncate", "first", "max", "sum", "cls_mean"]
"""What becomes of a long document: cut at the model's positions; scored by its first chunk, its best one, or the sum
over all; scored from the mean of its chunks' CLS vectors."""

CHUNKS = "chunks"
"""Key of a batch: rows of each pair, ``[n]``; absent where each pair has one."""

_rows: ContextVar[Tensor | None] = ContextVar("rows", default=None)
"""Rows of each pair in the forward pass that this thread is at, where their CLS vectors are averaged."""


class ChunkInputs(PairInputs):
    """Each document cut by itself, so that no score depends on batch mates."""

    def __init__(self, *pairs: Any, capacity: int, only_first: bool = False) -> None:
        super().__init__(*pairs)
        self.only_first = only_first
        counts = np.maximum(1, -(-self.document_lengths // capacity))
        self.sizes = -(-self.document_lengths // counts)
        self.counts = np.ones_like(counts) if only_first else counts

    def lengths(self, rows: Array) -> Array:
        """Tokens of all chunks of every pair, query and special ones in each."""
        tokens, documents = self.sizes if self.only_first else self.document_lengths, self.document[rows]
        beside = self.query_lengths[self.query[rows]] + self.template.special
        return tokens[documents] + self.counts[documents] * beside

    def collate(self, rows: Array, starts: Array) -> dict[str, Tensor]:
        """As for plain pairs, but rows of chunks, pair after pair, with the number of each pair in ``chunks``."""
        documents = self.document[rows]
        counts, texts = self.counts[documents], []
        for document, count, size in zip(documents, counts, self.sizes[documents], strict=True):
            ids = self.documents[document]
            texts += [ids[i * size : (i + 1) * size] for i in range(count)]
        batch = self.join([self.queries[q] for q in np.repeat(self.query[rows], counts)], texts)
        return batch if self.only_first else batch | {CHUNKS: torch.from_numpy(counts)}

    def chunks(self, rows: Array, starts: Array, budget: int) -> list[Array]:
        """Pairs with equally many rows go together: then rows are of similar length where pairs are."""
        counts, lengths = self.counts[self.document[rows]], self.lengths(rows)
        parts = []
        for count in np.unique(counts):
            positions = np.flatnonzero(counts == count)
            parts += [positions[part] for part in pack(lengths[positions], budget)]
        return sorted(parts, key=lambda part: -lengths[part].max() * len(part))


def score_rows(network: Any, batch: Mapping[str, Any], long: Long) -> Tensor:
    """Scores ``[n]`` float32 of a collated batch, one per pair however many rows it has."""
    given = {name: value for name, value in batch.items() if name not in (CHUNKS, SEQUENCES)}
    counts = batch.get(CHUNKS)
    with rows(batch[SEQUENCES]) if SEQUENCES in batch else nullcontext():
        if counts is None:
            return network(**given).logits[:, 0].float()
        if long in ("max", "sum"):
            return torch.segment_reduce(network(**given).logits[:, 0].float(), long, lengths=counts, unsafe=True)
        token = _rows.set(counts)
        try:
            return network(**given).logits[:, 0].float()
        finally:
            _rows.reset(token)


def mean_of_cls(network: Any) -> None:
    """Between encoder and head, let the mean of each pair's CLS vectors stand for its rows, for :func:`score_rows`.

    The encoder's output becomes a sequence of this one vector, and what its pooler makes of it, so that the head, of
    whatever architecture, does the rest itself.
    """
    getattr(network, network.base_model_prefix).register_forward_hook(_average)


def _average(encoder: Any, _inputs: Any, output: Any) -> Any:
    if (counts := _rows.get()) is not None:
        cls = output.last_hidden_state[:, 0].float()
        output.last_hidden_state = torch.segment_reduce(cls, "mean", lengths=counts, axis=0, unsafe=True)[:, None]
        if output.get("pooler_output") is not None:
            output.pooler_output = encoder.pooler(output.last_hidden_state)
    return output


def check_long(long: str, network: Any, head: str) -> None:
    """Refuse a strategy that a model cannot do."""
    if long == "cls_mean" and head == "hf":
        pooler = getattr(getattr(network, network.base_model_prefix), "pooler", None)
        pooled = getattr(network.config, "classifier_pooling", "cls") != "cls" or isinstance(pooler, nn.Linear)
        if pooled or getattr(network.config, "is_encoder_decoder", False):  # BART's reads the last token
            kind = type(network).__name__
            raise UserError(f"model.long cls_mean: the head of {kind} reads more than CLS; choose model.head cls")
