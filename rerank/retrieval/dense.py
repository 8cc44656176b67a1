"""Dense retrieval: documents as vectors on disk, and exhaustive search for the nearest ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from rerank.collections.base import Collection, Document, Query
from rerank.progress import tqdm
from rerank.retrieval.runs import Run, Scored
from rerank.storage.arrow import Array, batched, read_arrow, write_arrow
from rerank.storage.files import atomic_file, cache_folder, digest, exclusive_lock

DENSE = "dense"
"""The column of its scores."""

BLOCK = 1 << 13
"""Documents of a block, which is in memory."""

QUERIES = 512
"""Queries whose products with a block are in memory together."""

SCHEMA = pa.schema([("doc_id", pa.string()), ("vector", pa.list_(pa.float16()))])


class Encoder(Protocol):
    """Turns texts into vectors of length 1."""

    id: str
    """The same for two encoders that give the same vectors."""
    name: str
    """For people."""

    def documents(self, texts: Sequence[str]) -> Array:
        """Encode documents, ``[n, D]`` float32."""

    def queries(self, texts: Sequence[str]) -> Array:
        """Encode queries, ``[n, D]`` float32."""


def build_vectors(collection: Collection, encoder: Encoder) -> Path:
    """Embed the documents of a collection, unless that has been done already; return the Arrow file.

    It is named by the hash of the documents and the encoder, and has a record batch of ``doc_id`` and float16
    ``vector`` per block: 0.8 GB for a million vectors of 384 numbers. It appears when it is complete; a killed
    embedding starts over.
    """
    path = cache_folder() / "vectors" / f"{digest(collection.fingerprint(), encoder.id)}.arrow"
    if not path.exists():
        with exclusive_lock(path, wait=True):
            if not path.exists():
                blocks = encoded(collection.documents(), encoder)
                batches = ({"doc_id": ids, "vector": list(vectors)} for ids, vectors in blocks)
                with atomic_file(path) as temporary:
                    write_arrow(temporary, SCHEMA, batches)
    return path


def encoded(
    documents: Iterable[Document], encoder: Encoder, total: int | None = None
) -> Iterator[tuple[list[str], Array]]:
    """Yield ids and vectors, ``[n, D]`` float16, block by block."""
    with tqdm(documents, f"embedding with {encoder.name}", total, unit=" documents", disable=None) as bar:
        for block in batched(bar, BLOCK):
            vectors = encoder.documents([document.text for document in block])
            yield [document.id for document in block], vectors.astype(np.float16)


def read_vectors(path: Path) -> Iterator[tuple[list[str], Array]]:
    """Yield ids and vectors, ``[n, D]`` float32, block by block."""
    for block in read_arrow(path).to_batches():
        vectors = block["vector"].flatten().to_numpy(zero_copy_only=False).reshape(len(block), -1)
        yield block["doc_id"].to_pylist(), vectors.astype(np.float32)


def search_dense(vectors: Path, encoder: Encoder, queries: Sequence[Query], depth: int) -> Run:
    """Find the nearest documents of every query by inner product, the cosine of vectors of length 1.

    Every document is compared with every query: for Q queries, N documents and D numbers that is :math:`Q N D`
    multiplications, a matrix product, and nothing is approximate. Memory is a block and the best so far.

    Returns:
        The queries in the order given, each with its documents, best first; ties in the order of the collection.
    """
    encoded = encoder.queries([query.text for query in queries])
    best = np.full((len(queries), depth), -np.inf, dtype=np.float32)
    places = np.full((len(queries), depth), -1, dtype=np.int64)  # -1 if there are fewer documents
    ids: list[str] = []
    with tqdm(read_vectors(vectors), "searching", unit=" blocks", disable=None) as bar:
        for names, block in bar:
            for start in range(0, len(queries), QUERIES):
                part = slice(start, start + QUERIES)
                _best(best[part], places[part], encoded[part] @ block.T, len(ids))
            ids += names
    return {
        query.id: [Scored(ids[at], float(score)) for at, score in zip(places, scores, strict=True) if at >= 0]
        for query, places, scores in zip(queries, places, best, strict=True)
    }


def _best(scores: Array, places: Array, new: Array, first: int) -> None:
    """Merge the scores of a block, ``[Q, B]``, that starts at a place, into the best of each query, ``[Q, depth]``."""
    both = np.concatenate([scores, new], axis=1)
    at = np.concatenate([places, np.broadcast_to(first + np.arange(new.shape[1]), new.shape)], axis=1)
    order = np.argsort(-both, axis=1, kind="stable")[:, : scores.shape[1]]
    scores[:], places[:] = np.take_along_axis(both, order, 1), np.take_along_axis(at, order, 1)
