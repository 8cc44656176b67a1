"""FastSoftSort: ranks by projection on the permutahedron, which is antitonic regression."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from rerank.errors import UserError
from rerank.relaxations.backward import full_precision
from rerank.relaxations.base import Batch, SoftRanks, Spread
from rerank.relaxations.order import blocks, first, order_of
from rerank.settings.ranges import Positive

STRENGTH = 4.0
"""N - 1 times the strength over the spread of a list's scores, while that is below 1."""

BETA = 10.0
"""Default steepness over ranks."""


def antitonic_l2(target: Tensor, real: Tensor) -> Tensor:
    """The decreasing v that minimises ``sum_i (v_i - target_i)^2``: ``[B, N]`` float64, 0 where not ``real``.

    The real entries of a list are its first ones. On the CPU by pooling adjacent violators, list by list, in O(N);
    elsewhere by :func:`antitonic_minimax`, in O(N^2) but without waiting for the device.
    """
    if target.device.type == "cpu":
        from scipy.optimize import isotonic_regression

        result = torch.zeros_like(target)
        for row, values, count in zip(result.numpy(), target.numpy(), real.sum(dim=1).tolist(), strict=True):
            if count:
                row[:count] = isotonic_regression(values[:count], increasing=False).x
        return result
    return antitonic_minimax(block_means(target), real)


def antitonic_kl(logits: Tensor, weights: Tensor, real: Tensor) -> Tensor:
    """The decreasing v whose value on a block is ``logsumexp(logits) - log sum(weights)`` of the block.

    As for :func:`antitonic_l2`; the logits decrease, and the weights are above 0.
    """
    if logits.device.type == "cpu":
        result = torch.zeros_like(logits)
        for row, values, shares, count in zip(result, logits, weights, real.sum(dim=1).tolist(), strict=True):
            row[:count] = torch.tensor(_pool(values[:count].tolist(), shares[:count].tolist()), dtype=row.dtype)
        return result
    return antitonic_minimax(block_ratios(logits, weights), real)


Blocks = Callable[[slice], Tensor]
"""From a slice of starts j to the values of the blocks j..k, ``[B, starts, N]``; k < j is meaningless."""


def block_means(target: Tensor) -> Blocks:
    """The mean of every block of ``target``."""
    sums = torch.nn.functional.pad(target.cumsum(dim=1), (1, 0))
    position = torch.arange(target.shape[1] + 1, device=target.device)

    def values(start: slice) -> Tensor:
        length = (position[1:] - position[start, None]).clamp(min=1)
        return (sums[:, None, 1:] - sums[:, start, None]) / length

    return values


def block_ratios(logits: Tensor, weights: Tensor) -> Blocks:
    """``logsumexp(logits) - log sum(weights)`` of every block; logits decrease."""
    sums = torch.nn.functional.pad(weights.cumsum(dim=1), (1, 0))
    tiny = torch.finfo(logits.dtype).tiny

    def values(start: slice) -> Tensor:
        own = logits[:, start, None]
        reached = (logits[:, None, :] - own).triu(start.start).exp().triu(start.start).cumsum(dim=2)
        return own + reached.clamp(min=tiny).log() - (sums[:, None, 1:] - sums[:, start, None]).clamp(min=tiny).log()

    return values


def _pool(logits: list[float], weights: list[float]) -> list[float]:
    """Pool adjacent violators for the blocks of :func:`antitonic_kl`, one list."""
    found: list[tuple[float, float, float, int]] = []  # value, logsumexp, sum of weights, length
    for logit, weight in zip(logits, weights, strict=True):
        value, length = logit - math.log(weight), 1
        while found and found[-1][0] <= value:
            _, other, share, size = found.pop()
            high, low = max(logit, other), min(logit, other)
            logit, weight, length = high + math.log1p(math.exp(low - high)), weight + share, length + size
            value = logit - math.log(weight)
        found.append((value, logit, weight, length))
    return [value for value, _, _, length in found for _ in range(length)]


def antitonic_minimax(block_values: Blocks, real: Tensor) -> Tensor:
    """``v_i = min_{j <= i} max_{k >= i} value(j..k)``, the solution of every such problem; 0 where not real."""
    size = real.shape[1]
    position = torch.arange(size, device=real.device)
    result = torch.full(real.shape, float("inf"), dtype=torch.float64, device=real.device)
    for start in blocks(size, 4 * real.numel(), real):  # several float64 numbers each
        before = position < position[start, None]
        values = block_values(start).masked_fill(before | ~real[:, None, :], -float("inf"))
        best = values.flip(2).cummax(dim=2).values.flip(2).masked_fill(before, float("inf"))
        result = torch.minimum(result, best.amin(dim=1))
    return torch.where(real, result, 0.0)


def block_ids(solution: Tensor) -> Tensor:
    """Which block each entry of a decreasing solution is in: ``[B, N]`` int64, from 0."""
    scale = 1 + solution.abs().amax(dim=1, keepdim=True)
    steps = solution[:, :-1] - solution[:, 1:] > 1e-11 * scale
    return torch.nn.functional.pad(steps.cumsum(dim=1), (1, 0))


class FastSoftSort(SoftRanks):
    r"""Soft ranks by projection on the permutahedron (Blondel, Teboul, Berthet and Djolonga 2020).

    .. math:: r = \arg\min_{\mu \in \mathcal{P}(\rho)} \tfrac{1}{2} \|\mu + s / \varepsilon\|^2, \quad
        \rho = (N, N - 1, \ldots, 1)

    with "l2"; with "kl" the projection is by Kullback-Leibler divergence, of :math:`e^{-s/\varepsilon}`. Tied documents
    share the mean of their ranks. The ranks are exact once scores are further apart than the strength; as the strength
    grows they all go to their mean. The paper has no cut-offs: comparisons with one and between ranks are those of
    Approx with ``half_rank``, by beta. ``strength="spread"``, which is ours, compares scores, as for Approx, and is 4
    min(1, sd(s)) / (N - 1), a little more than the distance between neighbours. On the CPU it takes as long as sorting;
    on other devices time grows with N x N, so that the host never waits. Memory grows with N.

    >>> mask, rows = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0, 1]])
    >>> batch = Batch(torch.tensor([[0.0, 0.5]]), torch.tensor([[1.0, 0.0]]), mask, rows)
    >>> FastSoftSort(strength=1).ranks(batch)  # their mean, 3/2, and half the difference of scores
    tensor([[1.7500, 1.2500]])
    >>> FastSoftSort(strength=0.5).ranks(batch)  # no more than one rank apart
    tensor([[2., 1.]])

    Args:
        strength: epsilon; exact as it goes to 0, 1 in the authors' code. "spread" takes it from the spread of scores
            and the length of the list.
        regularization: "l2" or "kl".
        beta: steepness of the sigmoids over ranks (cut-off, AP, RR); with "spread" the sigmoids are over scores, and
            any value but 10 is refused.
    """

    def __init__(
        self, strength: Positive | Spread = 1.0, regularization: Literal["l2", "kl"] = "l2", beta: Positive = BETA
    ) -> None:
        if isinstance(strength, str) and beta != BETA:
            raise UserError("beta is the steepness over ranks, and strength='spread' compares scores; give a strength")
        self.strength, self.by_scores = strength, isinstance(strength, str)
        self.regularization, self.beta = regularization, beta

    def ranks(self, batch: Batch) -> Tensor:
        order = order_of(-batch.scores, batch.mask)  # ascending scores, so that -s / strength descends
        strength: Any = self.strength
        if strength == "spread":
            gaps = (batch.mask.sum(dim=1, keepdim=True) - 1).clamp(min=1)
            strength = STRENGTH * batch.spread.clamp(max=1) / gaps
        descending = -batch.scores.gather(1, order) / strength
        projected = _Projection.apply(descending, first(batch.mask), self.regularization == "kl")
        return batch.at_rows(torch.ones_like(projected).scatter(1, order, projected))


class _Projection(torch.autograd.Function):
    """Projection of a descending vector on the permutahedron of (N, ..., 1), and its Jacobian."""

    @staticmethod
    def forward(ctx: Any, descending: Tensor, real: Tensor, kl: bool) -> Tensor:
        z = descending.double()
        count = real.sum(dim=1, keepdim=True)
        rho = (count - torch.arange(z.shape[1], device=z.device)).clamp(min=1).to(z.dtype)
        solution = antitonic_kl(z, rho, real) if kl else antitonic_l2(z - rho, real)
        result = (z - solution).exp() if kl else z - solution
        result = torch.where(real, result, 1.0)
        block = torch.where(real, block_ids(solution), z.shape[1] - 1)
        totals = torch.zeros_like(z).scatter_add_(1, block, rho if kl else torch.ones_like(z))
        ctx.save_for_backward(block, (result if kl else torch.ones_like(z)) / totals.gather(1, block), result, real)
        ctx.kl = kl
        return result.to(descending.dtype)

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        block, share, result, real = ctx.saved_tensors
        slopes = torch.where(real, gradient * result if ctx.kl else gradient.double(), 0.0)
        totals = torch.zeros_like(slopes).scatter_add_(1, block, slopes)
        total = slopes - share * totals.gather(1, block)
        return torch.where(real, total, 0.0).to(gradient.dtype), None, None
