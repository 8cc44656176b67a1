"""An embedding model as evidence about candidates: texts become vectors whose inner products are cosines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rerank.errors import UserError
from rerank.kernels.precision import Precision, autocast, resolve
from rerank.models.text.network import reading
from rerank.models.weights import find_model, initial_hashes
from rerank.storage.arrow import Array
from rerank.storage.identity import id_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BATCH = 32
"""Texts of a forward pass; of several thousand that are given together those of similar length come together."""


class Embedder:
    """An embedding model as sentence-transformers loads it: its pooling, its limit of tokens, its prompts."""

    def __init__(self, name: str, precision: Precision = "auto") -> None:
        from sentence_transformers import SentenceTransformer

        folder = find_model(name)
        with reading(folder):
            self.model: SentenceTransformer = SentenceTransformer(
                str(folder), trust_remote_code=False, local_files_only=True, model_kwargs={"use_safetensors": True}
            )
        self.name = name
        self.precision, _ = resolve(precision, self.model.device)
        self.id = id_of({"files": initial_hashes(folder), "precision": self.precision})

    def documents(self, texts: Sequence[str]) -> Array:
        """Vectors of documents, ``[n, D]`` float32 of length 1."""
        return self._encode(self.model.encode_document, texts)

    def queries(self, texts: Sequence[str]) -> Array:
        """Vectors of queries, ``[n, D]`` float32 of length 1, with the model's prompt for queries where it has one."""
        return self._encode(self.model.encode_query, texts)

    def _encode(self, encode: Any, texts: Sequence[str]) -> Array:
        with torch.inference_mode(), autocast(self.precision, self.model.device):
            raw = encode(list(texts), batch_size=BATCH, show_progress_bar=False, convert_to_tensor=True)
        vectors: Array = torch.nn.functional.normalize(raw.float(), dim=-1).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise UserError(
                f"{self.name}: some vectors are not finite; is it an embedding model? Or take --precision fp32"
            )
        return vectors
