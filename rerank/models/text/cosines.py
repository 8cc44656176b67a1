"""Cosines of queries and documents by an embedding model: of the candidates of lists, or of one query's documents."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rerank.collections import Document
from rerank.errors import UserError
from rerank.lists.view import Lists
from rerank.models.text.embedder import Embedder
from rerank.models.weights import find_model, initial_hashes
from rerank.retrieval.dense import Vectors
from rerank.storage.arrow import Array, taken
from rerank.storage.identity import id_of

PAIRS = 1 << 15
"""Candidates whose two vectors are in memory together."""


def cosines(lists: Lists, encoder: Embedder, folder: Path | None = None) -> Array:
    r"""The cosine :math:`u_q \cdot v_d` of every candidate, ``[T]`` float32; each distinct document is encoded once."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="rerank-") as temporary:
            return cosines(lists, encoder, Path(temporary))
    vectors, rows = Vectors(folder), np.unique(lists.documents)
    texts = taken(lists.store.documents.column("text"), rows)
    vectors.build((Document("", text.as_py()) for text in texts), encoder, len(rows))
    queries = encoder.queries(lists.query_texts)
    of = np.repeat(np.arange(len(lists)), lists.lengths)
    order = np.argsort(lists.documents, kind="stable")
    documents = np.searchsorted(rows, lists.documents[order])
    values, first = np.empty(len(order), dtype=np.float32), 0
    for _, block in vectors.blocks():
        start, end = np.searchsorted(documents, [first, first + len(block)])
        for at in range(start, end, PAIRS):
            part = slice(at, min(at + PAIRS, end))
            pairs = queries[of[order[part]]], block[documents[part] - first]
            values[order[part]] = np.einsum("nd,nd->n", *pairs)
        first += len(block)
    return values


def cosines_of(query: str, documents: Sequence[str], encoder: Embedder) -> Array:
    """The cosine of each document of one query, ``[n]`` float32, its vectors rounded as those on disk are."""
    if not documents:
        return np.zeros(0, dtype=np.float32)
    rounded = encoder.documents(documents).astype(np.float16).astype(np.float32)
    found: Array = rounded @ encoder.queries([query])[0]
    return found


def encoder_of(column: str, made: Mapping[str, str]) -> Embedder:
    """The embedding model that a column was made by, in the same arithmetic."""
    files = initial_hashes(find_model(made["model"]))
    for precision in ("fp32", "bf16", "fp16"):
        if id_of({"files": files, "precision": precision}) == made["sha256"]:
            return Embedder(made["model"], precision)
    raise UserError(
        f"column {column}: {made['model']} is another model now than the one whose cosines are mixed in; give the "
        "column, or make the ranker again"
    )
