"""Losses that write their gradient down beside their value."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from rerank.losses.base import Loss
from rerank.relaxations.backward import WithGradient


class KnownGradient(Loss):
    """A loss with a gradient in closed form: a few operations on ``[B, N]``, none of which is differentiated.

    >>> class Push(KnownGradient):  # the mean over documents of -y s, whose derivative is -y / N
    ...     def learnable(self, labels, mask=None):
    ...         return labels.any(dim=1)
    ...
    ...     def value_and_gradient(self, scores, labels, mask, seeds):
    ...         return -(labels * scores).mean(dim=1), -labels / labels.shape[1]
    >>> scores = torch.tensor([[1.0, 2.0]], requires_grad=True)
    >>> Push()(scores, torch.tensor([[0, 3]])).backward()
    >>> scores.grad
    tensor([[-0.0000, -1.5000]])
    """

    always_masked: ClassVar[bool] = False

    @abstractmethod
    def value_and_gradient(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, seeds: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The loss of every list, ``[B]``, and its gradient ``[B, N]``, 0 where padded; both finite for every list.

        The arguments are those of :meth:`Loss.per_list`: scores without a graph, and no mask where all are real.
        """

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None, seeds: Tensor | None) -> Tensor:
        return WithGradient.apply(scores, *self.value_and_gradient(scores.detach(), labels, mask, seeds))


def logits(values: Tensor, mask: Tensor | None, temperature: float = 1.0) -> Tensor:
    """Values over the temperature, the lowest number where padded: finite, or a list of pads would become NaN."""
    if temperature != 1:
        values = values / temperature
    return values if mask is None else values.masked_fill(~mask, torch.finfo(values.dtype).min)
