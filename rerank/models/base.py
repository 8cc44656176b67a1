"""What the trainer and the scoring loop ask of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rerank.described import Described
from rerank.kernels.packing import pack

if TYPE_CHECKING:
    from torch import Tensor

    from rerank.arrow import Array
    from rerank.lists.store import Lists

ON_A_CPU = 2048
"""Tokens of a forward pass on a CPU: enough for a core's products, few enough for its cache."""


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

    def chunks(self, queries: Array, documents: Array, budget: int) -> list[Array]:
        """Positions of the pairs that go through the model together, every pair once, the largest first."""
        return pack(self.lengths(queries, documents), budget)


class Model(Described, ABC):
    """What a run leaves in ``best/``: a scorer, or trees."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the model (safetensors, or its library's own format) and all that scoring needs (JSON)."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Self:
        """Read what :meth:`save` wrote."""

    @abstractmethod
    def contract(self) -> dict[str, Any]:
        """What an input looks like (tokenizer, lengths, head; features, normalisers); saved as ``rerank.json``."""


class Scorer(Model):
    """A network that scores query-document pairs; implementations are also ``torch.nn.Module``."""

    bf16: ClassVar[bool] = True
    """Whether ``precision: auto`` may choose bf16."""

    alone: bool = False
    """Whether a forward pass changes the model, so that there may be only one at a time."""

    @property
    def budget(self) -> int:
        """Rows of its matrix products (padded tokens, feature vectors) per forward pass, unless told otherwise."""
        from torch import nn

        assert isinstance(self, nn.Module)
        return ON_A_CPU if next(self.parameters()).device.type == "cpu" else 8192

    def prepare(self, train: Lists, seed: int) -> None:
        """Make ready for a training: fit what depends on its lists (normalisers, widths), draw fresh weights.

        Args:
            train: the training lists.
            seed: decides the fresh weights, and nothing else does.
        """
        del train, seed

    @abstractmethod
    def inputs(self, lists: Lists) -> Inputs:
        """Prepare (tokenise, normalise) a lists folder for this model."""

    @abstractmethod
    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Scores of a collated batch: ``[n]`` float32."""

    @abstractmethod
    def head_parameters(self) -> set[str]:
        """Names of the parameters that ``head_lr`` trains; ``encoder_lr`` trains the others."""


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Let torch's random numbers on the CPU follow from a seed; whoever draws afterwards notices nothing."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
