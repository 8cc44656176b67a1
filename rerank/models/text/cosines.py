"""Cosines of queries and documents by an embedding model: of the candidates of lists, or of one query's documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch

from rerank.collections.base import Document
from rerank.errors import UserError
from rerank.kernels.precision import Precision, autocast, resolve
from rerank.lists.view import Lists
from rerank.models.folder import find_model, hash_model
from rerank.retrieval.dense import encoded
from rerank.storage.arrow import Array, taken

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BATCH = 32
"""Texts of a forward pass; of several thousand that are given together those of similar length come together."""

PAIRS = 1 << 15
"""Candidates whose two vectors are in memory together."""


class Embedder:
    """An embedding model as sentence-transformers loads it: its pooling, its limit of tokens, its prompts."""

    def __init__(self, name: str, precision: Precision = "auto") -> None:
        from sentence_transformers import SentenceTransformer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # of loading the weights
        folder = find_model(name)
        self.model: SentenceTransformer = SentenceTransformer(
            str(folder), trust_remote_code=False, local_files_only=True, model_kwargs={"use_safetensors": True}
        )
        self.name = name
        self.precision, _ = resolve(precision, self.model.device)
        self.id = f"{hash_model(folder)}-{self.precision}"

    @classmethod
    def of(cls, column: str, made: Mapping[str, str]) -> Self:
        """Load the embedding model that a column was made with, in the same precision."""
        files, _, precision = made["sha256"].partition("-")
        if hash_model(find_model(made["model"])) == files:
            return cls(made["model"], cast(Precision, precision))
        why = f"{made['model']} is another model now than the one whose cosines the ranker uses"
        raise UserError(f"column {column}: {why}; give the column, or make the ranker again")

    def documents(self, texts: Sequence[str]) -> Array:
        """Embed documents: ``[n, D]`` float32 of length 1."""
        return self._encode(self.model.encode_document, texts)

    def queries(self, texts: Sequence[str]) -> Array:
        """Embed queries, with the model's prompt for queries if it has one: ``[n, D]`` float32 of length 1."""
        return self._encode(self.model.encode_query, texts)

    def _encode(self, encode: Any, texts: Sequence[str]) -> Array:
        with torch.inference_mode(), autocast(self.precision, self.model.device):
            raw = encode(list(texts), batch_size=BATCH, show_progress_bar=False, convert_to_tensor=True)
        vectors: Array = torch.nn.functional.normalize(raw.float(), dim=-1).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise UserError(f"{self.name}: vectors are not finite; is it an embedding model? Or take --precision fp32")
        return vectors

    def cosines(self, lists: Lists) -> Array:
        r"""Compute the cosine :math:`u_q \cdot v_d` of every candidate, ``[T]``; equal documents are encoded once."""
        rows = np.unique(lists.documents)
        texts = taken(lists.store.documents.column("text"), rows)
        blocks = encoded((Document("", text.as_py()) for text in texts), self, len(rows))
        queries = self.queries(lists.query_texts)
        of = np.repeat(np.arange(len(lists)), lists.lengths)
        order = np.argsort(lists.documents, kind="stable")
        documents = np.searchsorted(rows, lists.documents[order])
        values, first = np.empty(len(order), dtype=np.float32), 0
        for _, vectors in blocks:
            block = vectors.astype(np.float32)  # rounded as those on disk are
            start, end = np.searchsorted(documents, [first, first + len(block)])
            for at in range(start, end, PAIRS):
                part = slice(at, min(at + PAIRS, end))
                pairs = queries[of[order[part]]], block[documents[part] - first]
                values[order[part]] = np.einsum("nd,nd->n", *pairs)
            first += len(block)
        return values

    def cosines_of(self, query: str, documents: Sequence[str]) -> Array:
        """Compute the cosine of each document of one query, ``[n]`` float32, from vectors rounded as on disk."""
        if not documents:
            return np.zeros(0, dtype=np.float32)
        place = {document: number for number, document in enumerate(dict.fromkeys(documents))}
        rounded = self.documents(list(place)).astype(np.float16).astype(np.float32)
        found: Array = rounded @ self.queries([query])[0]
        return found[[place[document] for document in documents]]  # equal texts have equal cosines
