"""Dense retrieval: documents as vectors on disk, and exhaustive search for the nearest ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from rerank.collections import Collection, Document, Query
from rerank.progress import tqdm
from rerank.retrieval.runs import Run, Scored
from rerank.storage.arrow import Array, batched, read_arrow, write_arrow
from rerank.storage.files import atomic_file, cache_folder, digest, read_json, write_json
from rerank.storage.locks import exclusive_lock

DENSE = "dense"
"""The column of its scores."""

BLOCK = 1 << 13
"""Documents of a block: what a killed embedding has to do again at the most, and what is in memory."""

QUERIES = 512
"""Queries whose products with a block are in memory together."""

WHOLE = "whole.json"


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


class Vectors:
    """The vectors of some documents in numbered Arrow files, float16, each whole or absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.arrow"

    def build(self, documents: Iterable[Document], encoder: Encoder, total: int | None) -> None:
        """Encode documents, except for whole blocks of a killed process."""
        if (self.folder / WHOLE).exists():
            return
        with exclusive_lock(self.folder, wait=True):
            count = blocks = 0
            with tqdm(documents, f"embedding with {encoder.name}", total, unit=" documents", disable=None) as bar:
                for number, block in enumerate(batched(bar, BLOCK)):
                    if not self.path(number).is_file():
                        self._write(number, block, encoder.documents([document.text for document in block]))
                    count, blocks = count + len(block), number + 1
            write_json(self.folder / WHOLE, {"documents": count, "blocks": blocks})

    def _write(self, number: int, documents: Sequence[Document], vectors: Array) -> None:
        rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float16).ravel()), vectors.shape[1])
        schema = pa.schema([("doc_id", pa.string()), ("vector", rows.type)])
        with atomic_file(self.path(number)) as temporary:
            write_arrow(temporary, schema, [{"doc_id": [document.id for document in documents], "vector": rows}])

    def blocks(self) -> Iterator[tuple[list[str], Array]]:
        """Yield ids and vectors, ``[n, D]`` float32, block by block."""
        for number in range(read_json(self.folder / WHOLE)["blocks"]):
            table = read_arrow(self.path(number))
            size = table.schema.field("vector").type.list_size
            flat = pa.chunked_array([chunk.flatten() for chunk in table.column("vector").chunks], pa.float16())
            yield table.column("doc_id").to_pylist(), flat.to_numpy().reshape(-1, size).astype(np.float32)


def build_vectors(collection: Collection, encoder: Encoder) -> Vectors:
    """Build the vectors of a collection, once for a hash of its documents and the encoder.

    On disk they take two bytes for each of a document's numbers: 0.8 GB for a million vectors of 384.
    """
    vectors = Vectors(cache_folder() / "vectors" / digest(collection.fingerprint(), encoder.id))
    vectors.build(collection.documents(), encoder, collection.document_count())
    return vectors


def search_dense(vectors: Vectors, encoder: Encoder, queries: Sequence[Query], depth: int) -> Run:
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
    with tqdm(vectors.blocks(), "searching", unit=" blocks", disable=None) as bar:
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
