r"""Attention on a CPU where PyTorch's own is slow: in bf16, and with dropout.

PyTorch's fused kernel is slow in bf16, backwards above all, and with dropout it gives way to one that draws a Bernoulli
variable per weight. Here

.. math:: P = \mathrm{softmax}(s Q K^\top), \quad O = \frac{1}{1 - p} (P \odot D) V

is computed by batched products, a few sequences at a time so that their matrices stay in the cache where sequences are
short, and :math:`P` is computed again in the backward pass: what is kept are Q, K, V, the softmax's sums and a byte per
element of D (see :mod:`rerank.kernels.dropout`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rerank.kernels.dropout import STEPS, draw, drop_
from rerank.kernels.precision import cpu_flags

FASTER = (torch.bfloat16,)
"""Types in which it is faster than PyTorch's kernel without dropout, too."""

SAFE = (1e-30, 1e32)
"""Sums of exponentials without overflow, and without underflow that matters."""

LARGEST = 1 << 22
"""Attention weights of a sequence, heads included, up to which it is worth its memory without dropout: those of 591
tokens and 12 heads."""

ELEMENTS = 1 << 20
"""Attention weights computed at once (but at least a sequence's): 2 MB in bf16."""


@dataclass(frozen=True)
class Run:
    """Neighbouring sequences of equal ``length``: ``count``, from ``number`` on, whose first place is ``start``."""

    number: int
    start: int
    count: int
    length: int

    def of(self, states: Tensor, first: bool = False) -> Tensor:
        """Return the states of these sequences, ``[count, H, length, d]``; ``first`` if each has a single one."""
        if first:
            return states[self.number : self.number + self.count].unsqueeze(2)
        places = slice(self.start, self.start + self.count * self.length)
        return states[places].unflatten(0, (self.count, self.length)).transpose(1, 2)

    def of_all(self, query: Tensor, key: Tensor, value: Tensor, first: bool) -> tuple[Tensor, Tensor, Tensor]:
        return self.of(query, first), self.of(key), self.of(value)


class Attention(torch.autograd.Function):
    """Attention within sequences that lie end to end, ``[T, H, d]``, a run at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        runs: list[Run],
        scale: float,
        steps: int,
        first: bool,
    ) -> Tensor:
        output, kept = torch.empty_like(query, memory_format=torch.contiguous_format), []
        with torch.autocast("cpu", enabled=False):
            for run in runs:
                part, *own = attended(*run.of_all(query, key, value, first), scale, steps)
                run.of(output, first).copy_(part)
                kept.append(own)
        ctx.save_for_backward(query, key, value, *(sums for sums, _ in kept), *(words for _, words in kept))
        ctx.runs, ctx.scale, ctx.steps, ctx.first = runs, scale, steps, first
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *kept = ctx.saved_tensors  # once: what is checkpointed cannot be unpacked again
        runs: list[Run] = ctx.runs
        found = [torch.empty_like(state, memory_format=torch.contiguous_format) for state in (query, key, value)]
        for run, *own in zip(runs, kept[: len(runs)], kept[len(runs) :], strict=True):
            states = run.of_all(query, key, value, ctx.first)
            parts = gradients(run.of(gradient, ctx.first), *states, ctx.scale, ctx.steps, *own)
            for place, part in zip(run.of_all(found[0], found[1], found[2], ctx.first), parts, strict=True):
                place.copy_(part)
        return (*found, None, None, None, None)


def attended(
    query: Tensor, key: Tensor, value: Tensor, scale: float, steps: int
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute attention of some sequences, ``[B, H, L, d]``, with a share ``steps`` / 256 of the weights dropped.

    The backward pass needs Q, K, V and the other two values: the sums of the exponentials, ``[B, H, L, 1]``, None if a
    maximum had to be subtracted before; and the random bytes that dropped weights, None without dropout.
    """
    query, key, value = (query * scale).contiguous(), key.contiguous(), value.contiguous()  # products copy, slowly
    weights = (query @ key.transpose(-1, -2)).exp_()
    sums = weights.sum(-1, keepdim=True)
    # A maximum per row, taken off before the exponential, takes as long as that; sums show where it was needed.
    least, most = sums.aminmax()
    safe = bool(SAFE[0] < least and most < SAFE[1])
    if not safe:
        weights = torch.softmax(query @ key.transpose(-1, -2), -1)
    words = draw(weights.numel()) if steps else None
    if words is not None:
        drop_(weights, words, steps)
    share = (STEPS - steps) / STEPS
    return (weights @ value).div_(sums * share if safe else share), sums if safe else None, words


def gradients(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    steps: int,
    sums: Tensor | None,
    words: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of query, key and value from what :func:`attended` returned."""
    query, key, value = (query * scale).contiguous(), key.contiguous(), value.contiguous()
    gradient = (gradient * (STEPS / (STEPS - steps))).contiguous()
    logits = query @ key.transpose(-1, -2)
    weights = torch.softmax(logits, -1) if sums is None else logits.exp_().div_(sums)
    of_weights, left = gradient @ value.transpose(-1, -2), weights
    if words is not None:
        left = drop_(weights.clone(), words, steps)
        drop_(of_weights, words, steps)
    of_logits = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, weights.dtype)
    return (of_logits @ key).mul_(scale), of_logits.transpose(-1, -2) @ query, left.transpose(-1, -2) @ gradient


def is_faster(kind: torch.dtype, elements: int, steps: int, training: bool) -> bool:
    """Tell if this attention is faster than PyTorch's: with dropout, and in bf16 unless it scores with AMX."""
    if steps:
        return kind in (torch.bfloat16, torch.float32) and steps < STEPS
    return kind in FASTER and elements <= LARGEST and (training or "amx_bf16" not in cpu_flags())
