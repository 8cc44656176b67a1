"""What the trainer and the scoring loop ask of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from rerank.lists.ragged import Array
    from rerank.lists.store import Lists


CONTRACT = "rerank.json"
"""The file beside a model's weights that says what its inputs look like."""


class Inputs(ABC):
    """The lists of a folder in the form that one model reads."""

    @abstractmethod
    def lengths(self, queries: Array, documents: Array) -> Array:
        """Cost of each pair in rows of the model's matrix products (tokens; 1 for feature vectors), ``[n]``."""

    @abstractmethod
    def collate(self, queries: Array, documents: Array) -> dict[str, Tensor]:
        """The model's input for these pairs.

        Args:
            queries: ``[n]`` rows of queries in the store.
            documents: ``[n]`` rows of documents in the store.
        """


class Scorer(ABC):
    """A model that scores query-document pairs; implementations are also ``torch.nn.Module``."""

    @abstractmethod
    def inputs(self, lists: Lists) -> Inputs:
        """Prepare (tokenise, normalise) a lists folder for this model."""

    @abstractmethod
    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Scores of a collated batch: ``[n]`` float32."""

    @abstractmethod
    def head_parameters(self) -> set[str]:
        """Names of the parameters that ``head_lr`` trains; ``encoder_lr`` trains the others."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write weights (safetensors) and everything needed to score with them again (JSON)."""

    @abstractmethod
    def contract(self) -> dict[str, Any]:
        """What an input looks like: tokenizer, lengths, head."""
