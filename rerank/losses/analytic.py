"""Losses with an analytic gradient."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from rerank.losses.base import Loss
from rerank.relaxations.backward import WithGradient


class AnalyticLoss(Loss):
    """A loss that computes its gradient with its value: a few operations on ``[B, N]``, none of them differentiated.

    >>> class Push(AnalyticLoss):  # the mean over documents of -y s, whose derivative is -y / N
    ...     def learnable(self, labels, mask):
    ...         return labels.any(dim=1)
    ...
    ...     def value_and_gradient(self, scores, labels, mask, seeds):
    ...         return -(labels * scores).mean(dim=1), -labels / labels.shape[1]
    >>> scores = torch.tensor([[1.0, 2.0]], requires_grad=True)
    >>> Push()(scores, torch.tensor([[0, 3]])).backward()
    >>> scores.grad
    tensor([[-0.0000, -1.5000]])
    """

    @abstractmethod
    def value_and_gradient(
        self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss of every list, ``[B]``, and its gradient ``[B, N]``, 0 where padded; both finite.

        The arguments are those of :meth:`Loss.per_list`, scores without a graph.
        """

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        return WithGradient.apply(scores, *self.value_and_gradient(scores.detach(), labels, mask, seeds))


def logits(values: Tensor, mask: Tensor, temperature: float = 1.0) -> Tensor:
    """Divide values by the temperature, with the lowest finite number at pads: all pads must not become NaN."""
    return (values / temperature).masked_fill(~mask, torch.finfo(values.dtype).min)
