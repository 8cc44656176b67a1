"""A run as columns: some 30 bytes a pair, however it was written, and a mapping for whoever goes query by query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from rerank.html import shown
from rerank.storage.arrow import Array

if TYPE_CHECKING:
    import pandas as pd

SLICE = 1 << 14
"""Pairs in which duplicates are looked for at a time."""


class Scored(NamedTuple):
    """A document of a run: its id and its score."""

    id: str
    score: float


class RunTable(Mapping[str, list[Scored]]):
    """A run: query id -> documents, best first; what one query has is made when it is asked for.

    Attributes:
        queries: the ids of the queries, in the order in which the file has them.
        offsets: ``[Q + 1]`` where each query's documents start, and the last one's end.
        documents: ``[T]`` document ids (``large_string``), query after query, best first.
        scores: ``[T]`` float64, as they were read.
    """

    def __init__(self, queries: Sequence[str], offsets: Array, documents: pa.ChunkedArray, scores: Array) -> None:
        self.queries, self.offsets, self.documents, self.scores = queries, offsets, documents, scores
        self._positions = {query: position for position, query in enumerate(queries)}

    def __len__(self) -> int:
        return len(self.queries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.queries)

    def __contains__(self, query: object) -> bool:
        return query in self._positions

    def __getitem__(self, query: str) -> list[Scored]:
        position = self._positions[query]
        start, end = self.offsets[position : position + 2].tolist()
        ids = self.documents.slice(start, end - start).to_pylist()
        return list(map(Scored, ids, self.scores[start:end].tolist()))

    def __repr__(self) -> str:
        count, pairs = len(self), len(self.scores)
        return f"RunTable({count} quer{'y' if count == 1 else 'ies'}, {pairs} document{'' if pairs == 1 else 's'})"

    def to_dataframe(self) -> pd.DataFrame:
        """A row per document: ``query_id``, ``doc_id``, ``rank`` (from 1) and ``score``."""
        import pandas as pd

        lengths = np.diff(self.offsets)
        return pd.DataFrame(
            {
                "query_id": np.repeat(np.array(self.queries, dtype=object), lengths),
                "doc_id": self.documents.to_pylist(),
                "rank": np.arange(len(self.scores)) - np.repeat(self.offsets[:-1], lengths) + 1,
                "score": self.scores,
            }
        )

    def _repr_html_(self) -> str:
        return shown(repr(self), self.to_dataframe())


class TwiceError(ValueError):
    """A query has a document twice; its arguments are the two ids."""


def as_table(queries: Sequence[str], codes: Array, documents: pa.ChunkedArray, ranks: Array, scores: Array) -> RunTable:
    """Lines of a run, ``[T]`` each, as a table: query after query, as they first appear.

    The documents of each are in descending order of score as float32, which is how trec_eval holds scores; ties in the
    order of ranks, then of lines. ``codes`` (int32) are the positions of the lines' queries among ``queries``.

    Raises:
        TwiceError: a query has a document twice.
    """
    keys = -as_float32(scores)
    if not _in_order(codes, keys, ranks):
        order = np.lexsort((ranks, keys, codes))
        codes, scores, documents = codes[order], scores[order], documents.take(pa.array(order))
    offsets = np.searchsorted(codes, np.arange(len(queries) + 1, dtype=codes.dtype))
    _check_once(queries, codes, offsets, documents)
    pa.default_memory_pool().release_unused()  # what the readers' buffers took
    return RunTable(queries, offsets, documents, scores)


def _in_order(codes: Array, keys: Array, ranks: Array) -> bool:
    tied = (keys[1:] == keys[:-1]) & (ranks[1:] >= ranks[:-1])
    within = (codes[1:] == codes[:-1]) & ((keys[1:] > keys[:-1]) | tied)
    return bool(((codes[1:] > codes[:-1]) | within).all())


def _check_once(queries: Sequence[str], codes: Array, offsets: Array, documents: pa.ChunkedArray) -> None:
    first = 0
    while first < len(queries):
        last = max(int(np.searchsorted(offsets, offsets[first] + SLICE, side="right")) - 1, first + 1)
        start, end = int(offsets[first]), int(offsets[last])
        some = documents.slice(start, end - start).combine_chunks().dictionary_encode()
        pairs = (codes[start:end] - first).astype(np.int64) * len(some.dictionary) + some.indices.to_numpy()
        pairs.sort()
        if len(twice := pairs[1:][pairs[1:] == pairs[:-1]]):
            query, document = divmod(int(twice[0]), len(some.dictionary))
            raise TwiceError(queries[first + query], some.dictionary[document].as_py())
        first = last


def as_float32(scores: Sequence[float] | Array) -> Array:
    """Scores as float32; what is too large for it becomes its largest number."""
    limit = np.finfo(np.float32).max
    with np.errstate(over="ignore"):
        return np.clip(np.asarray(scores, dtype=np.float64).astype(np.float32), -limit, limit)
