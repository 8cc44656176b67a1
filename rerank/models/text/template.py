"""How a tokenizer joins a query and a document, read off the tokenizer itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rerank.errors import UserError
from rerank.storage.arrow import Array, ranges

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class PairTemplate:
    """The special tokens around a pair: ``prefix query middle document suffix``.

    For BERT this is ``[CLS] query [SEP] document [SEP]`` with token types 0 and 1.

    Attributes:
        types: token type of prefix, query, middle, document and suffix; None where the model has none.
    """

    prefix: Array
    middle: Array
    suffix: Array
    types: tuple[int, int, int, int, int] | None
    pad: int

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, with_types: bool = True) -> PairTemplate:
        """Encode a pair and see where the tokenizer puts its two sides."""
        encoded = tokenizer("a", "b", return_token_type_ids=True)
        query, document = ([i for i, of in enumerate(encoded.sequence_ids()) if of == side] for side in (0, 1))
        if not query or not document or tokenizer.pad_token_id is None:
            raise UserError(f"{tokenizer.name_or_path}: its tokenizer cannot encode and pad pairs")
        ids = np.asarray(encoded["input_ids"], dtype=np.int64)
        middle = ids[query[-1] + 1 : document[0]]
        if not len(middle):
            raise UserError(
                f"{tokenizer.name_or_path}: its tokenizer joins query and document without anything between them; take "
                "one that has a template for pairs"
            )
        types: tuple[int, int, int, int, int] | None = None
        if with_types and "token_type_ids" in tokenizer.model_input_names:
            of = encoded["token_type_ids"]
            types = of[0], of[query[0]], of[document[0] - 1], of[document[0]], of[-1]
        return cls(ids[: query[0]], middle, ids[document[-1] + 1 :], types, int(tokenizer.pad_token_id))

    @property
    def special(self) -> int:
        """Number of special tokens of a pair."""
        return len(self.prefix) + len(self.middle) + len(self.suffix)

    def end_to_end(self, queries: Array, documents: Array, lengths: Array) -> tuple[Array, Array | None]:
        """Ids of pairs without padding, ``[T]`` int64, and their token types, where the model has them."""
        sizes = np.empty((len(lengths), 5), dtype=np.int64)
        sizes[:, ::2] = len(self.prefix), len(self.middle), len(self.suffix)
        sizes[:, 1::2] = lengths
        ends = sizes.cumsum().reshape(sizes.shape)
        starts, ids = ends - sizes, np.empty(sizes.sum(), dtype=np.int64)
        for part, special in zip((0, 2, 4), (self.prefix, self.middle, self.suffix), strict=True):
            ids[starts[:, part, None] + np.arange(len(special))] = special
        ids[ranges(starts[:, 1], sizes[:, 1])] = queries
        ids[ranges(starts[:, 3], sizes[:, 3])] = documents
        return ids, None if self.types is None else np.repeat(np.tile(self.types, len(sizes)), sizes.ravel())

    def join(self, queries: list[Array], documents: list[Array]) -> dict[str, Array]:
        """Padded model input of pairs given as token ids: arrays ``[n, L]`` int64 by the model's argument names."""
        lengths = np.array([[len(q), len(d)] for q, d in zip(queries, documents, strict=True)])
        ids, types = self.end_to_end(np.concatenate(queries), np.concatenate(documents), lengths)
        totals = lengths.sum(1) + self.special
        mask = np.arange(totals.max()) < totals[:, None]
        padded = {"input_ids": np.full(mask.shape, self.pad, dtype=np.int64), "attention_mask": mask.astype(np.int64)}
        padded["input_ids"][mask] = ids
        if types is not None:
            padded["token_type_ids"] = np.zeros(mask.shape, dtype=np.int64)
            padded["token_type_ids"][mask] = types
        return padded
