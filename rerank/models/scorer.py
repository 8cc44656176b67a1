"""What the trainer and the scoring loop need from a network."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from rerank.kernels.implementations import Implementations, Kernels
from rerank.kernels.precision import Precision
from rerank.lists.view import Lists
from rerank.models.base import Inputs, Model
from rerank.models.score import ALONE, ON_A_CPU, score_lists
from rerank.settings.ranges import Count, check_value
from rerank.storage.arrow import Array


class Scorer(Model, nn.Module):
    """A network that scores the candidates of lists."""

    bf16: ClassVar[bool] = True
    """Whether ``precision: auto`` may choose bf16."""

    alone: bool = False
    """Whether a forward pass changes the model, so that there may be only one at a time."""

    @property
    def whole_batches(self) -> bool:
        """Whether one process has to take a whole batch: batch norm normalises a document by those beside it."""
        return any(isinstance(module, nn.BatchNorm1d) for module in self.modules())

    @property
    def budget(self) -> int:
        """Default number of rows of its matrix products (padded tokens, feature vectors) per forward pass."""
        return ON_A_CPU if next(self.parameters()).device.type == "cpu" else 8192

    def prepare(self, train: Lists, seed: int) -> None:
        """Fit what depends on the training lists (normalisers, widths), and draw fresh weights, by the seed alone."""

    def settle(self, precision: Precision, kernels: Kernels = "auto") -> Implementations | None:
        """Choose the faster among kernels that give the same numbers, for the device that holds the model.

        Scoring calls it if nobody has.
        """
        return None

    @abstractmethod
    def inputs(self, lists: Lists) -> Inputs:
        """Prepare (tokenise, normalise) a lists folder for this model."""

    @abstractmethod
    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Scores of a collated batch: ``[n]`` float32."""

    def predict(self, lists: Lists, budget: int | None = None) -> Array:
        """Scores of every candidate of lists, ``[T]`` float32, in their order.

        Args:
            lists: the lists.
            budget: rows of its matrix products (padded tokens, feature vectors) per forward pass; None for its own.

        Raises:
            UserError: lists that lack what the model reads.
        """
        check_value("budget", budget, Count | None)
        self.warn_if_untrained()
        with ALONE:
            return score_lists(self, self.inputs(lists), lists, budget=budget)

    def joined(self, scores: Tensor, beside: Tensor) -> Tensor:
        """The final scores, from those of all chunks; called if its inputs have something ``beside``."""
        raise NotImplementedError(f"{type(self).__name__}: its inputs have something beside, which it does not add")

    def logged(self) -> dict[str, Any]:
        """What to log of the model with every validation, beside the measures."""
        return {}

    @abstractmethod
    def head_parameters(self) -> set[str]:
        """Names of the parameters that ``head_lr`` trains; ``encoder_lr`` trains the others."""
