r"""Attention on a CPU where PyTorch's own is slow: in bf16, and with dropout.

PyTorch's fused kernel is slow in bf16, backwards above all, and with dropout it gives way to one that draws a Bernoulli
variable per weight. Here

.. math:: P = \mathrm{softmax}(s Q K^\top + M), \quad O = \frac{1}{1 - p} (P \odot D) V

is computed by batched products, a few sequences at a time so that their matrices stay in the cache where sequences are
short, and :math:`P` is computed again in the backward pass: what is kept are Q, K, V, the softmax's sums and a byte per
element of D (see :mod:`rerank.kernels.dropout`). A token that may see nothing gets the mean of V.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rerank.kernels.dropout import STEPS, draw, drop_
from rerank.kernels.implementations import Implementation

FASTER = (torch.bfloat16,)
"""Types in which it is faster than PyTorch's kernel without dropout as well; in float32 it is not."""

SAFE = (1e-30, 1e32)
"""Sums of exponentials without overflow, and without underflow that matters."""

LARGEST = 1 << 22
"""Attention weights of a sequence, heads included, up to which it is worth its memory without dropout: those of 591
tokens and 12 heads."""

ELEMENTS = 1 << 20
"""Attention weights computed at once (but at least a sequence's): 2 MB in bf16."""


class Saved(NamedTuple):
    """What of the attention of some sequences its backward pass needs beside Q, K and V.

    Attributes:
        sums: of the exponentials, ``[B, H, L, 1]``; None where a maximum had to be taken off before.
        words: the bytes that dropped some of the weights; None where none were dropped.
    """

    sums: Tensor | None
    words: Tensor | None


class Attention(torch.autograd.Function):
    """Of ``[B, H, L, d]``; the mask ``[B or 1, H or 1, L or 1, L]`` is boolean (True is seen), or None."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, steps: int
    ) -> Tensor:
        parts = []
        with torch.autocast("cpu", enabled=False):
            for rows in _slices(query, key):
                parts.append(attended(query[rows], key[rows], value[rows], _part(mask, rows), scale, steps))
        output, kept = zip(*parts, strict=True)
        keep(ctx, kept, query, key, value, mask)
        ctx.scale, ctx.steps = scale, steps
        return torch.cat(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        kept, query, key, value, mask = again(ctx)
        parts = [
            gradients(gradient[rows], query[rows], key[rows], value[rows], _part(mask, rows), ctx.scale, ctx.steps, own)
            for rows, own in zip(_slices(query, key), kept, strict=True)
        ]
        return (*map(torch.cat, zip(*parts, strict=True)), None, None, None)


def keep(ctx: Any, kept: Sequence[Saved], *others: Tensor | None) -> None:
    """Let the graph keep them."""
    ctx.save_for_backward(*others, *(sums for sums, _ in kept), *(words for _, words in kept))
    ctx.others = len(others)


def again(ctx: Any) -> tuple[Any, ...]:
    """What :func:`keep` was given, in the same order."""
    saved = ctx.saved_tensors  # once: what is checkpointed cannot be unpacked again
    others, found = saved[: ctx.others], saved[ctx.others :]
    half = len(found) // 2
    return [Saved(*pair) for pair in zip(found[:half], found[half:], strict=True)], *others


def attended(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, steps: int
) -> tuple[Tensor, Saved]:
    """Attention of some sequences, ``[B, H, L, d]``, and what to keep; ``steps`` / 256 of its weights are dropped.

    A mask of fewer than L columns is one of the last keys.
    """
    query, key, value = (query * scale).contiguous(), key.contiguous(), value.contiguous()  # products copy, slowly
    weights = _logits(query, key, mask).exp_()
    sums = weights.sum(-1, keepdim=True)
    # A maximum per row, taken off before the exponential, takes as long as that; sums show where it was needed.
    least, most = sums.aminmax()
    safe = bool(SAFE[0] < least and most < SAFE[1])
    if not safe:
        weights = torch.softmax(_logits(query, key, mask), -1)
    words = draw(weights.numel()) if steps else None
    if words is not None:
        drop_(weights, words, steps)
    share = (STEPS - steps) / STEPS
    return (weights @ value).div_(sums * share if safe else share), Saved(sums if safe else None, words)


def gradients(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    steps: int,
    kept: Saved,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value, of what :func:`attended` gave."""
    query, key, value = (query * scale).contiguous(), key.contiguous(), value.contiguous()
    gradient = (gradient * (STEPS / (STEPS - steps))).contiguous()
    logits = _logits(query, key, mask)
    weights = torch.softmax(logits, -1) if kept.sums is None else logits.exp_().div_(kept.sums)
    of_weights, left = gradient @ value.transpose(-1, -2), weights
    if kept.words is not None:
        left = drop_(weights.clone(), kept.words, steps)
        drop_(of_weights, kept.words, steps)
    of_logits = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, weights.dtype)
    return (of_logits @ key).mul_(scale), of_logits.transpose(-1, -2) @ query, left.transpose(-1, -2) @ gradient


def _logits(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    logits = query @ key.transpose(-1, -2)
    if mask is not None:
        last = logits[..., logits.shape[-1] - mask.shape[-1] :]
        last += torch.zeros(mask.shape, dtype=logits.dtype).masked_fill_(~mask, torch.finfo(logits.dtype).min)
    return logits


def _slices(query: Tensor, key: Tensor) -> list[slice]:
    """Sequences that go together."""
    count = max(1, ELEMENTS // max(1, query.shape[1] * query.shape[2] * key.shape[2]))
    return [slice(start, start + count) for start in range(0, len(query), count)]


def _part(mask: Tensor | None, rows: slice) -> Tensor | None:
    return mask if mask is None or len(mask) == 1 else mask[rows]


def is_ours(way: Implementation | None, kind: torch.dtype, elements: int, steps: int) -> bool:
    """Whether ours is taken: as chosen for the module, within its memory; else where it is faster."""
    known = kind in (torch.bfloat16, torch.float32) and steps < STEPS and (steps > 0 or elements <= LARGEST)
    return known and (way == "own" or (way is None and (steps > 0 or kind in FASTER)))
