r"""Documents that are longer than a model has positions: cut into chunks, brought together again.

A document of ``l`` tokens goes into :math:`n = \lceil l / M \rceil` chunks of :math:`\lceil l / n \rceil` tokens (the
last may be shorter), where ``M`` is what a row has room for beside the query: equal chunks without overlap, as
MacAvaney et al. 2019 (CEDR) cut. A row is a query with one chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from rerank.arrow import Array
from rerank.errors import UserError
from rerank.kernels.flat import SEQUENCES, rows
from rerank.kernels.packing import pack
from rerank.lists.tokens import Tokens
from rerank.models.text.pairs import PairInputs
from rerank.models.text.template import PairTemplate

if TYPE_CHECKING:
    from torch import Tensor

Long = Literal["truncate", "first", "max", "sum", "cls_mean", "literal_cedr"]
"""What becomes of a long document: cut at the model's positions; scored by its first chunk, its best one, or the sum
over all; scored from the mean of its chunks' CLS vectors; the last exactly as in CEDR's code, batch mates and all."""

CHUNKS = "chunks"
"""Key of a batch: rows of each pair, ``[n]``; absent where each pair has one."""

CEDR_BATCH = 16
"""Pairs that CEDR evaluates together; it trains on 4."""

_rows: ContextVar[Tensor | None] = ContextVar("rows", default=None)
"""Rows of each pair in the forward pass that this thread is at, where their CLS vectors are averaged."""


def make_inputs(
    long: Long, tokens: Tokens, query: Array, document: Array, template: PairTemplate, query_length: int, room: int
) -> PairInputs:
    """The inputs of a strategy; ``room`` is how many tokens a row has for query and chunk together."""
    if long == "truncate":
        return PairInputs(tokens, query, document, template)
    if long == "literal_cedr":
        return CedrInputs(tokens, query, document, template, room - query_length, query_length)
    return ChunkInputs(tokens, query, document, template, room - query_length, only_first=long == "first")


class ChunkInputs(PairInputs):
    """Each document cut by itself, so that no score depends on batch mates.

    Args:
        tokens: see :class:`PairInputs`.
        query: see there.
        document: see there.
        template: how a row is joined.
        capacity: tokens of a chunk at most.
        only_first: whether chunks after the first are left out.
    """

    def __init__(
        self,
        tokens: Tokens,
        query: Array,
        document: Array,
        template: PairTemplate,
        capacity: int,
        only_first: bool = False,
    ) -> None:
        super().__init__(tokens, query, document, template)
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
        import torch

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


class CedrInputs(PairInputs):
    """CEDR's own rows: a document's chunks depend on the longest document beside it.

    Of a batch whose longest document has ``D`` tokens, every document is padded to ``D`` and cut into
    ``ceil(D / capacity)`` equal chunks; one that is only padding counts in the mean as well. Queries are padded to
    their length, so that padding takes positions, and the last special token comes after a chunk's padding. Batches
    are 16 pairs in the order of the lists; in training, the documents that a micro-batch holds (4 in CEDR's).
    Scores equal those of ``cls_mean`` where all documents are of one length and all queries of the full one.
    """

    def __init__(
        self,
        tokens: Tokens,
        query: Array,
        document: Array,
        template: PairTemplate,
        capacity: int,
        query_length: int,
    ) -> None:
        super().__init__(tokens, query, document, template)
        self.capacity, self.query_length = capacity, query_length

    def lengths(self, rows: Array) -> Array:
        """Tokens of the rows that every pair would have by itself."""
        lengths = self.document_lengths[self.document[rows]]
        counts = np.maximum(1, -(-lengths // self.capacity))
        return lengths + counts * (self.query_length + self.template.special)

    def chunks(self, rows: Array, starts: Array, budget: int) -> list[Array]:
        """Pairs in their order, 16 together, whatever the budget: the batch is part of the recipe."""
        return [np.arange(first, min(first + CEDR_BATCH, len(rows))) for first in range(0, len(rows), CEDR_BATCH)]

    def collate(self, rows: Array, starts: Array) -> dict[str, Tensor]:
        """Rows of padded queries and padded chunks, pair after pair, equally many for each."""
        import torch

        queries, documents = self.query[rows], self.document[rows]
        width = int(self.document_lengths[documents].max())
        count = max(1, -(-width // self.capacity))
        size = -(-width // count)
        texts = _padded([self.documents[d] for d in documents], count * size).reshape(len(documents) * count, size)
        asked = _padded([self.queries[q] for q in queries], self.query_length).repeat(count, axis=0)
        batch = self.join(list(np.maximum(asked, 0)), list(np.maximum(texts, 0)))
        for side, ids in ((0, asked), (self.query_length, texts)):
            start = len(self.template.prefix) + side + (len(self.template.middle) if side else 0)
            here = slice(start, start + ids.shape[1])
            missing = torch.from_numpy(ids < 0)
            batch["attention_mask"][:, here].masked_fill_(missing, 0)
            batch["input_ids"][:, here].masked_fill_(missing, self.template.pad)
        return batch | {CHUNKS: torch.full((len(documents),), count)}


def _padded(rows: list[Array], width: int) -> Array:
    """Ids as ``[n, width]`` int64, -1 where there are none."""
    padded = np.full((len(rows), width), -1, dtype=np.int64)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return padded


def score_rows(network: Any, batch: Mapping[str, Any], long: Long) -> Tensor:
    """Scores ``[n]`` float32 of a collated batch, one per pair however many rows it has.

    Args:
        network: a classifier of one label as Hugging Face builds it, or one that looks like it.
        batch: what ``collate`` made.
        long: how the rows of a pair come together.
    """
    import torch

    given = {name: value for name, value in batch.items() if name not in (CHUNKS, SEQUENCES)}
    counts = batch.get(CHUNKS)
    with rows(batch[SEQUENCES]) if SEQUENCES in batch else nullcontext():
        if counts is None:
            return network(**given).logits[:, 0].float()
        if long in ("max", "sum"):
            return torch.segment_reduce(network(**given).logits[:, 0].float(), long, lengths=counts)
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
    import torch

    if (counts := _rows.get()) is not None:
        cls = output.last_hidden_state[:, 0].float()
        output.last_hidden_state = torch.segment_reduce(cls, "mean", lengths=counts, axis=0)[:, None]
        if output.get("pooler_output") is not None:
            output.pooler_output = encoder.pooler(output.last_hidden_state)
    return output


def check_long(long: str, network: Any, head: str) -> None:
    """Refuse strategies that a model cannot do.

    Raises:
        UserError: no such strategy, or a head that does not read the CLS vector alone.
    """
    from torch import nn

    if long not in get_args(Long):
        raise UserError(f"model.long is {long!r}; it is one of {', '.join(get_args(Long))}")
    if long == "literal_cedr" and head != "cls":
        raise UserError("model.long literal_cedr is CEDR's recipe, which needs model.head cls")
    if long == "cls_mean" and head == "hf":
        pooler = getattr(getattr(network, network.base_model_prefix), "pooler", None)
        pooled = getattr(network.config, "classifier_pooling", "cls") != "cls" or isinstance(pooler, nn.Linear)
        if pooled or getattr(network.config, "is_encoder_decoder", False):  # BART's reads the last token
            kind = type(network).__name__
            raise UserError(f"model.long cls_mean: the head of {kind} reads more than CLS; choose model.head cls")
