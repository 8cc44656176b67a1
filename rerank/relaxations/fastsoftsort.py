"""FastSoftSort: ranks by projection on the permutahedron, which is antitonic regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rerank.errors import UserError
from rerank.relaxations.base import Adaptive, Batch, SoftRanks
from rerank.relaxations.order import first, order_of
from rerank.settings.arguments import Positive

STRENGTH = 4.0
"""N - 1 times the strength over the spread of a list's scores, while that is below 1."""

BETA = 10.0
"""Default steepness over ranks."""


class FastSoftSort(SoftRanks):
    r"""Soft ranks by projection on the permutahedron (Blondel, Teboul, Berthet and Djolonga 2020).

    .. math:: r = \arg\min_{\mu \in \mathcal{P}(\rho)} \tfrac{1}{2} \|\mu + s / \varepsilon\|^2, \quad
        \rho = (N, N - 1, \ldots, 1)

    Tied documents share the mean of their ranks. The ranks are exact once scores are further apart than the strength;
    as the strength grows they all go to their mean. The paper has no cut-offs: ranks are compared with k + 1/2 and
    with one another by sigmoids, with ``beta``. ``strength="adaptive"``, which is not from the paper, compares scores,
    as for Approx, and is 4 min(1, sd(s)) / (N - 1), a little more than the distance between neighbours. It takes as
    long as sorting, on the CPU: a GPU waits for it.

    >>> mask, rows = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0, 1]])
    >>> batch = Batch(torch.tensor([[0.0, 0.5]]), torch.tensor([[1.0, 0.0]]), mask, rows)
    >>> FastSoftSort(strength=1).ranks(batch)  # their mean, 3/2, and half the difference of scores
    tensor([[1.7500, 1.2500]])
    >>> FastSoftSort(strength=0.5).ranks(batch)  # no more than one rank apart
    tensor([[2., 1.]])

    Args:
        strength: epsilon; exact as it goes to 0, 1 in the authors' code. "adaptive" takes it from the spread of scores
            and the length of the list.
        beta: steepness of the sigmoids over ranks (cut-off, AP, RR); with "adaptive" the sigmoids are over scores, and
            any value but 10 is refused.
    """

    def __init__(self, strength: Positive | Adaptive = 1.0, beta: Positive = BETA) -> None:
        if isinstance(strength, str) and beta != BETA:
            raise UserError(
                "beta: the steepness over ranks, but strength='adaptive' compares scores; set strength to a number"
            )
        self.strength, self.by_scores, self.beta = strength, isinstance(strength, str), beta

    def ranks(self, batch: Batch) -> Tensor:
        order = order_of(-batch.scores, batch.mask)  # ascending scores, so that -s / strength descends
        real, count = first(batch.mask), batch.mask.sum(dim=1, keepdim=True)
        strength: Any = self.strength
        if strength == "adaptive":
            strength = STRENGTH * batch.spread.clamp(max=1) / (count - 1).clamp(min=1)
        descending = (-batch.scores.gather(1, order) / strength).double()
        solution = _antitonic(descending - (count - torch.arange(real.shape[1], device=order.device)), real)
        projected = torch.where(real, descending - solution, 1.0).to(batch.scores.dtype)
        return batch.at_rows(torch.ones_like(projected).scatter(1, order, projected))


def _antitonic(target: Tensor, real: Tensor) -> Tensor:
    """Compute the decreasing v that minimises ``sum_i (v_i - target_i)^2``, means of blocks: ``[B, N]`` float64.

    The real entries of a list are its first ones; pads are a block of their own.
    """
    from scipy.optimize import isotonic_regression

    blocks = np.full(target.shape, target.shape[1])
    for block, values, count in zip(blocks, target.detach().cpu().numpy(), real.sum(dim=1).tolist(), strict=True):
        if count:
            sizes = np.diff(isotonic_regression(values[:count], increasing=False).blocks)
            block[:count] = np.repeat(np.arange(len(sizes)), sizes)
    block_of = torch.from_numpy(blocks).to(target.device)
    empty = target.new_zeros(len(target), target.shape[1] + 1)
    counts = empty.scatter_add(1, block_of, torch.ones_like(target)).clamp(min=1)
    return (empty.scatter_add(1, block_of, target) / counts).gather(1, block_of)
