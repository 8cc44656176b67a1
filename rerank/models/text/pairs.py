r"""Pairs of token ids as a cross-encoder's input: joined as its tokenizer joins them; long documents cut into chunks.

A document of ``l`` tokens goes into :math:`n = \lceil l / M \rceil` chunks of :math:`\lceil l / n \rceil` tokens (the
last may be shorter), where ``M`` is what a row has room for beside the query: equal chunks without overlap, as
MacAvaney et al. 2019 (CEDR) cut. A row is a query with one chunk, and what they say is brought together again.

A text score may be a residual of the first stage's scores, which it learns to correct:

.. math:: s = \sum_c w_c z_c + t

with ``z`` of the columns (:func:`rerank.lists.columns.z_scores`) and the text score ``t``. Before the first step ``t``
is 0, so that the lists are ranked as before, and a loss that depends on ranks has a ranking to improve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from rerank.errors import UserError
from rerank.kernels.flat import SEQUENCES, lay, on_cpu
from rerank.kernels.flat_attention import SEEN, having
from rerank.kernels.packing import fill, pack
from rerank.lists.columns import z_scores
from rerank.lists.tokens import Tokens
from rerank.lists.view import Lists
from rerank.models.base import Inputs, check_added, check_column, given_column
from rerank.storage.arrow import Array, Ragged, ranges

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Long = Literal["truncate", "max", "cls_mean"]
"""Reading of a long document: cut at the model's positions; scored by its best chunk; scored from the mean of its
chunks' CLS vectors."""

CHUNKS, FIRST_STAGE = "chunks", "first_stage"
"""Keys of a batch, if there are any: rows of each pair, ``[n]``; first-stage scores of each pair, ``[n, C]``."""

DEPTH = 100
"""Candidates of a stored list, from the top, whose mean and deviation make z."""

WEIGHT = 0.25
"""Default ``w`` of all columns together. The initial ranks do not depend on it, the gradient does: with 1, a hinge or a
sharp relaxation has no gradient on most lists, and the text score hardly learns."""


@dataclass(frozen=True)
class PairTemplate:
    """The special tokens around a pair: ``prefix query middle document suffix``.

    For BERT this is ``[CLS] query [SEP] document [SEP]`` with token types 0 and 1.

    Attributes:
        types: token type of prefix, query, middle, document and suffix; None where the model has none.
        document_first: whether document and query change places.
        pads_left: whether rows are padded at their beginnings, so that each ends with its last token.
    """

    prefix: Array
    middle: Array
    suffix: Array
    types: tuple[int, int, int, int, int] | None
    pad: int
    document_first: bool = False
    pads_left: bool = False

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, with_types: bool = True, decoder: bool = False) -> PairTemplate:
        """Encode a pair to find the special tokens around its two sides; an encoder needs one between them."""
        encoded = tokenizer("a", "b", return_token_type_ids=True)
        query, document = ([i for i, of in enumerate(encoded.sequence_ids()) if of == side] for side in (0, 1))
        if not query or not document or tokenizer.pad_token_id is None:
            raise UserError(f"{tokenizer.name_or_path}: its tokenizer cannot encode and pad pairs")
        ids = np.asarray(encoded["input_ids"], dtype=np.int64)
        middle = ids[query[-1] + 1 : document[0]]
        if not decoder and not len(middle):
            why = "its tokenizer joins query and document without anything between them"
            raise UserError(f"{tokenizer.name_or_path}: {why}; take one that has a template for pairs")
        types: tuple[int, int, int, int, int] | None = None
        if with_types and "token_type_ids" in tokenizer.model_input_names:
            of = encoded["token_type_ids"]
            types = of[0], of[query[0]], of[document[0] - 1], of[document[0]], of[-1]
        pad = int(tokenizer.pad_token_id)
        return cls(ids[: query[0]], middle, ids[document[-1] + 1 :], types, pad, pads_left=decoder)

    @property
    def special(self) -> int:
        return len(self.prefix) + len(self.middle) + len(self.suffix)

    def end_to_end(self, queries: Array, documents: Array, lengths: Array) -> tuple[Array, Array | None]:
        """Return the ids of pairs without padding, ``[T]`` int64, and their token types if the model has them.

        Args:
            queries: ids of the queries, end to end.
            documents: ids of the documents, end to end.
            lengths: of query and document, ``[n, 2]``.
        """
        sizes = np.empty((len(lengths), 5), dtype=np.int64)
        query, document = (3, 1) if self.document_first else (1, 3)
        sizes[:, [query, document]] = lengths
        special = {0: self.prefix, 2: self.middle, 4: self.suffix}
        for part, tokens in special.items():
            sizes[:, part] = len(tokens)
        ends = sizes.cumsum().reshape(sizes.shape)
        starts, ids = ends - sizes, np.empty(sizes.sum(), dtype=np.int64)
        for part, tokens in special.items():
            ids[starts[:, part, None] + np.arange(len(tokens))] = tokens
        ids[ranges(starts[:, query], sizes[:, query])] = queries
        ids[ranges(starts[:, document], sizes[:, document])] = documents
        return ids, None if self.types is None else np.repeat(np.tile(self.types, len(sizes)), sizes.ravel())

    def padded(self, ids: Array, types: Array | None, lengths: Array) -> dict[str, Tensor]:
        """Pad pairs that lie end to end: ``[n, L]`` int64 by the model's argument names."""
        places = np.arange(lengths.max())
        mask = (places[::-1] if self.pads_left else places) < lengths[:, None]
        batch = {"input_ids": np.full(mask.shape, self.pad, dtype=np.int64), "attention_mask": mask.astype(np.int64)}
        batch["input_ids"][mask] = ids
        if types is not None:
            batch["token_type_ids"] = np.zeros(mask.shape, dtype=np.int64)
            batch["token_type_ids"][mask] = types
        if self.pads_left:
            batch["position_ids"] = np.maximum(mask.cumsum(1) - 1, 0)
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def join(self, queries: list[Array], documents: list[Array]) -> dict[str, Tensor]:
        """Join and pad pairs given as token ids."""
        lengths = np.array([[len(q), len(d)] for q, d in zip(queries, documents, strict=True)])
        ids, types = self.end_to_end(np.concatenate(queries), np.concatenate(documents), lengths)
        return self.padded(ids, types, lengths.sum(1) + self.special)


def with_instructions(tokens: Tokens, templates: Sequence[PairTemplate]) -> tuple[Tokens, PairTemplate]:
    """Take the tokens around each query into the query, so that queries with different instructions share a template.

    Raises:
        UserError: different instructions behind the document.
    """
    first = templates[0]
    if all(one is first for one in templates):
        return tokens, first
    if first.document_first or any(one.suffix.tolist() != first.suffix.tolist() for one in templates):
        raise UserError(
            "instruction: queries have different ones, and the model's template has no place for them before the "
            "document; give all queries the same"
        )
    queries = [np.concatenate([one.prefix, tokens.queries[i], one.middle]) for i, one in enumerate(templates)]
    nothing = np.zeros(0, dtype=np.int64)
    own = replace(tokens, queries=Tokens.of(queries, []).queries)
    return own, replace(first, prefix=nothing, middle=nothing)


class PairInputs(Inputs):
    """Queries and documents as token ids without special tokens; each pair has a row for each chunk of its document.

    Args:
        tokens: ids of queries and documents.
        query: the query of each row of candidates.
        document: the document of each row of candidates.
        template: the special tokens around a pair.
        network: the network, if it reads rows without padding.
        capacity: tokens of a chunk at most; None for documents in one piece.
        first_stage: first-stage scores of all rows of candidates, ``[N, C]`` float32.
    """

    def __init__(
        self,
        tokens: Tokens,
        query: Array,
        document: Array,
        template: PairTemplate,
        *,
        network: Any = None,
        capacity: int | None = None,
        first_stage: Array | None = None,
    ) -> None:
        self.queries, self.documents, self.template = tokens.queries, tokens.documents, template
        self.network, self.first_stage = network, first_stage
        self.query_lengths, self.document_lengths = tokens.query_lengths, tokens.document_lengths
        self.query, self.document = query, document
        self.counts = np.maximum(1, -(-self.document_lengths // (capacity or 1 << 62)))
        self.sizes = -(-self.document_lengths // self.counts)
        self.has_chunks = capacity is not None

    def lengths(self, rows: Array) -> Array:
        """Count the tokens of all rows of every pair, query and special ones in each."""
        document = self.document[rows]
        beside = self.query_lengths[self.query[rows]] + self.template.special
        return self.document_lengths[document] + self.counts[document] * beside

    def chunks(self, rows: Array, starts: Array, budget: int) -> list[Array]:
        """Cut chunks: as full as they can be where a GPU waits for launches; of similar lengths on a CPU."""
        cut = pack if self.network is None or on_cpu(self.network) else fill
        return cut(self.lengths(rows), budget)

    def representatives(self, rows: Array) -> Array:
        parts = [_numbered(self.documents, self.document[rows])]
        if self.first_stage is not None:
            parts += [np.unique(values, return_inverse=True)[1] for values in self.first_stage[rows].T]
        pair = _numbered(self.queries, self.query[rows])
        for part in parts:
            pair = np.unique(pair * len(rows) + part, return_inverse=True)[1]
        return np.unique(pair, return_index=True)[1][pair]

    def collate(self, rows: Array, starts: Array) -> dict[str, Any]:
        """Join the tokens of all rows, end to end if the network reads them so, else padded."""
        document = self.document[rows]
        ids, whole, counts = self.documents.take(document), self.document_lengths[document], self.counts[document]
        query, sizes = np.repeat(self.query[rows], counts), np.repeat(self.sizes[document], counts)
        place = ranges(np.zeros_like(counts), counts)
        texts = np.minimum(sizes, np.repeat(whole, counts) - place * sizes)
        lengths = np.stack([self.query_lengths[query], texts], axis=1)
        joined, types = self.template.end_to_end(self.queries.take(query), ids, lengths)
        totals = lengths.sum(1) + self.template.special
        if self.network is None:
            batch: dict[str, Any] = self.template.padded(joined, types, totals)
        else:
            tokens = {"input_ids": torch.from_numpy(joined)}
            if types is not None:
                tokens["token_type_ids"] = torch.from_numpy(types)
            places = torch.from_numpy(ranges(np.zeros_like(totals), totals))
            batch = lay(tokens, places, torch.from_numpy(totals), self.network)
        if self.has_chunks:
            batch[CHUNKS] = torch.from_numpy(counts)
        if self.first_stage is not None:
            batch[FIRST_STAGE] = torch.from_numpy(self.first_stage[rows])
        return batch


def _numbered(texts: Ragged, chosen: Array) -> Array:
    """Number chosen texts from 0, equal ones alike."""
    distinct, of = np.unique(chosen, return_inverse=True)
    numbers: dict[bytes, int] = {}
    digests = (blake2b(texts[text].tobytes(), digest_size=16).digest() for text in distinct.tolist())
    return np.array([numbers.setdefault(digest, len(numbers)) for digest in digests], dtype=np.int64)[of]


def score_rows(network: Any, batch: Mapping[str, Any], long: Long) -> Tensor:
    """Score a collated batch: ``[n]`` float32, one per pair however many rows it has."""
    given = {name: value for name, value in batch.items() if name not in (CHUNKS, FIRST_STAGE, SEQUENCES)}
    counts = batch.get(CHUNKS)
    if long == "cls_mean":
        given[CHUNKS] = counts
    with having(SEEN, batch.get(SEQUENCES)):
        scores: Tensor = network(**given).logits[:, 0].float()
    if counts is None or long == "cls_mean":
        return scores
    return torch.segment_reduce(scores, "max", lengths=counts, unsafe=True)


class Residual(nn.Module):
    """The first stage's share of the scores: ``w`` for each column, trained with the head's rate, not decayed.

    Args:
        columns: the columns.
        initial: ``w`` of each column before the first step.
    """

    def __init__(self, columns: Sequence[str], initial: Sequence[float]) -> None:
        super().__init__()
        if len(set(columns)) < len(columns):
            raise UserError(f"model.residual_columns: expected columns, each once, not {', '.join(columns)}")
        self.columns, self.initial = list(columns), torch.tensor(initial, dtype=torch.float32)
        self.weights = nn.Parameter(self.initial.clone()) if columns else self.initial

    @classmethod
    def of(cls, columns: list[str] | str | None, weight: float | None, contract: Mapping[str, Any]) -> Residual:
        """Take columns and weight as given, else from a contract; see :class:`rerank.CrossEncoder`."""
        saved = contract.get("residual", {})
        chosen = [columns] if isinstance(columns, str) else saved.get("columns", []) if columns is None else columns
        if weight is None and chosen == saved.get("columns"):
            return cls(chosen, saved["weights"])
        if weight is not None and not chosen:
            raise UserError(
                "model.residual_weight: has no effect without model.residual_columns; name the columns there"
            )
        return cls(chosen, [(WEIGHT if weight is None else weight) / len(chosen)] * len(chosen) if chosen else [])

    def forward(self, z: Tensor) -> Tensor:
        """Compute the first stage's share of the scores, ``[n]``, from ``[n, C]``."""
        return (z * self.weights).sum(1)

    def contract(self) -> dict[str, Any]:
        residual = {"columns": self.columns, "weights": self.weights.tolist()}
        return {"residual": residual} if self.columns else {}

    def check(self, lists: Lists) -> None:
        """Refuse lists that lack a column, or with a column that would give added documents away."""
        for name in self.columns:
            check_column(lists, name, "the model reads")
        # Added documents have the lowest z of the column that orders the lists, as all below its depth have.
        if others := [name for name in self.columns if name != lists.store.order]:
            check_added(lists, others)

    def of_lists(self, lists: Lists) -> Array | None:
        """Return the z of all candidates of a store, ``[N, C]`` float32; None without columns."""
        if not self.columns:
            return None
        return np.stack([lists.store.scaled(name, DEPTH) for name in self.columns], axis=1)

    def of_values(self, columns: Mapping[str, Sequence[float] | Array], count: int) -> Array:
        """Compute the z of the candidates of one list from given columns, ``[n, C]`` float32."""
        given = [given_column(columns, name, count, "the model reads") for name in self.columns]
        offsets, added = np.array([0, count]), np.zeros(count, dtype=bool)
        return np.stack([z_scores(values, offsets, added, DEPTH) for values in given], axis=1)
