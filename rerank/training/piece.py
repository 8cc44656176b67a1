"""The loss of a micro-batch, as its share of the loss of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rerank.kernels.memory import sent
from rerank.losses.base import Loss
from rerank.storage.arrow import Array
from rerank.training.batches import ListSample
from rerank.training.gradient import Chunked
from rerank.training.targets import Targets

ELEMENTS, ON_A_GPU = 2048, 1 << 20
"""Above this many padded scores, bucket lists by length for the loss; below it, a further call costs more than padding.
A GPU waits for calls, not for scores, so it takes a micro-batch at once."""

DEAD = 1e-7
"""A list is dead to its loss, at the scores as they are, where no score's derivative is larger: float32's rounding unit
for losses of about 1."""


@dataclass(frozen=True)
class ActiveTerm:
    """A term as it counts in one step.

    Attributes:
        over: what the sum is divided by: for a mean, the learnable lists of the whole batch.
    """

    number: int
    loss: Loss
    weight: float
    over: int


class PieceLoss:
    """The loss of some lists by their scores; what is noted stays on the device, so that no host waits for it.

    Attributes:
        numbers: after a call the loss, the lowest and the highest score, ``[3]``.
        dead: after the backward pass how many lists had no gradient (:data:`DEAD`).
    """

    chunked: Chunked

    def __init__(
        self,
        groups: list[ListSample],
        tokens: int,
        terms: Sequence[ActiveTerm],
        targets: Targets,
        device: torch.device,
        scale: float | None = None,
    ) -> None:
        self.groups, self.tokens = groups, tokens
        self._terms, self._targets, self._device, self._scale = terms, targets, device, scale
        self._lengths = np.array([len(group.rows) for group in groups])
        self.starts = np.cumsum(self._lengths) - self._lengths
        smallest_weight = min(term.weight / term.over for term in terms)
        self._negligible = smallest_weight * DEAD * (1.0 if scale is None else scale)
        self.dead = torch.zeros((), device=device)

    def __call__(self, flat: Tensor) -> Tensor:
        """The loss of scores ``[N]``, list after list."""
        totals = [torch.zeros((), device=self._device) for _ in self._terms]
        for chosen in alike(self._lengths, ELEMENTS if self._device.type == "cpu" else ON_A_GPU):
            scores = self._padded(flat, chosen)
            scores.register_hook(self._count_dead)
            seeds = sent(torch.tensor([self.groups[i].seed for i in chosen]), self._device)
            rows = [self.groups[i].rows for i in chosen]
            for i, term in enumerate(self._terms):
                labels, mask = (sent(value, self._device) for value in self._targets.padded(term.number, rows))
                totals[i] = totals[i] + term.loss(scores, labels, mask, seeds=seeds)
        weighted = [total / term.over * term.weight for total, term in zip(totals, self._terms, strict=True)]
        loss = torch.stack(weighted).sum()
        self.numbers = torch.stack([loss.detach(), *flat.detach().aminmax()])
        return loss if self._scale is None else loss * self._scale

    def _padded(self, flat: Tensor, chosen: Array) -> Tensor:
        """The scores of some of the lists, ``[B, N]``, zero where padded."""
        lengths = torch.from_numpy(self._lengths[chosen])[:, None]
        real = torch.arange(int(lengths.max())) < lengths
        positions = torch.from_numpy(self.starts[chosen])[:, None] + torch.arange(real.shape[1])
        places = sent(positions.masked_fill_(~real, 0), self._device)
        return flat[places.flatten()].view_as(places).masked_fill(sent(~real, self._device), 0.0)

    def _count_dead(self, gradient: Tensor) -> None:
        self.dead += (gradient.abs().amax(dim=1) <= self._negligible).sum()


def alike(lengths: Array, elements: int) -> list[Array]:
    """Parts of similar length, as positions; about two fifths of one, or of ``elements``, are padding at most."""
    order = np.argsort(-lengths, kind="stable")
    parts, start = [], 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = max(start + -(-elements // longest), start + int((lengths[order[start:]] > 0.6 * longest).sum()))
        parts.append(order[start:stop])
        start = stop
    return parts
