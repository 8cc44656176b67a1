"""Antitonic regression: the decreasing sequence closest to a given one."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rerank.relaxations.order import blocks


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
