r"""Attention on a CPU where PyTorch's own is slow: in bf16, and with dropout.

PyTorch's fused kernel is slow in bf16, backwards above all, and with dropout it gives way to one that draws a Bernoulli
variable per weight. Here

.. math:: P = \mathrm{softmax}(s Q K^\top + M), \quad O = \frac{1}{1 - p} (P \odot D) V

is computed by batched products, a few sequences at a time so that their matrices stay in the cache, and :math:`P` is
computed again in the backward pass: what is kept are Q, K, V and a byte per element of D (see
:mod:`rerank.models.dropout`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rerank.models.dropout import STEPS, draw, drop_, threshold

NAME = "rerank"
"""The name under which Transformers finds it."""

FASTER = (torch.bfloat16,)
"""Types in which it is faster than PyTorch's kernel without dropout as well (1.2 to 2 times forward, 1.7 to 3 with the
backward pass; in float32 0.5 to 1)."""

ELEMENTS = 1 << 20
"""Attention weights computed at once (but at least a sequence's): 2 MB in bf16."""


class _Attention(torch.autograd.Function):
    """Of ``[B, H, L, d]``; the mask ``[B or 1, H or 1, L or 1, L]`` is boolean (True is seen), added, or None."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, steps: int
    ) -> Tensor:
        output, drawn = [], []
        with torch.autocast("cpu", enabled=False):
            for rows in _slices(query, key):
                weights = _weights(query[rows], key[rows], _part(mask, rows), scale)
                if steps:
                    drawn.append(draw(weights.numel()))
                    drop_(weights, drawn[-1], steps)
                output.append((weights @ value[rows]).mul_(STEPS / (STEPS - steps)))
        ctx.save_for_backward(query, key, value, mask, *drawn)
        ctx.scale, ctx.steps = scale, steps
        return torch.cat(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask, *drawn = ctx.saved_tensors
        parts = []
        for i, rows in enumerate(_slices(query, key)):
            g = gradient[rows] * (STEPS / (STEPS - ctx.steps))
            weights = _weights(query[rows], key[rows], _part(mask, rows), ctx.scale)
            of_weights, kept = g @ value[rows].transpose(-1, -2), weights
            if ctx.steps:
                kept = drop_(weights.clone(), drawn[i], ctx.steps)
                drop_(of_weights, drawn[i], ctx.steps)
            of_logits = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, weights.dtype).mul_(ctx.scale)
            parts.append((of_logits @ key[rows], of_logits.transpose(-1, -2) @ query[rows], kept.transpose(-1, -2) @ g))
        return (*map(torch.cat, zip(*parts, strict=True)), None, None, None)


def _slices(query: Tensor, key: Tensor) -> list[slice]:
    """Sequences that go together."""
    count = max(1, ELEMENTS // max(1, query.shape[1] * query.shape[2] * key.shape[2]))
    return [slice(start, start + count) for start in range(0, len(query), count)]


def _part(mask: Tensor | None, rows: slice) -> Tensor | None:
    return mask if mask is None or len(mask) == 1 else mask[rows]


def _weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    logits = (query * scale) @ key.transpose(-1, -2)
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=logits.dtype).masked_fill_(~mask, torch.finfo(logits.dtype).min)
    return torch.softmax(logits if mask is None else logits.add_(mask), -1)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention as Transformers calls it; PyTorch's own on other devices than a CPU, and where it is faster."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    plain = query.shape[1] == key.shape[1] and not (others.get("is_causal") or getattr(module, "is_causal", False))
    steps = threshold(dropout) if module.training else 0
    slow = query.dtype in FASTER or (steps > 0 and query.dtype == torch.float32)
    if not (plain and slow and query.device.type == "cpu"):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = _Attention.apply(query, key, value, attention_mask, scale, steps)
    return output.transpose(1, 2).contiguous(), None


def use_cheap_attention(network: Any) -> None:
    """Let a Transformers model attend by :func:`attention`, if its architecture leaves the choice."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    if network.config._attn_implementation != "sdpa":
        return
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    network.set_attn_implementation(NAME)
