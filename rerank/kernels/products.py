"""Queries, keys and values as one product, on a GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rerank.kernels.flat_attention import having

LAID: ContextVar[dict[tuple[Any, bool], tuple[Tensor, Tensor]] | None] = ContextVar("laid", default=None)
"""Weights and biases that lie end to end, by attention and whether there is a graph."""


def weights_stay() -> AbstractContextManager[None]:
    """Within it weights do not change, and are laid end to end once."""
    return having(LAID, {})


def by_one_product(own: Any, device: str) -> bool:
    """Whether an attention of BERT's kind computes its queries, keys and values at once."""
    return device != "cpu" and all(type(layer) is nn.Linear for layer in (own.query, own.key, own.value))


def products(own: Any, states: Tensor, asked: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values ``[T, H]`` of states ``[T, K]``, in their type; queries for ``asked`` rows alone."""
    weight, bias = _laid(own, states.dtype)
    if asked is None:
        query, key, value = F.linear(states, weight, bias).chunk(3, dim=1)
        return query, key, value
    size = len(bias) // 3
    key, value = F.linear(states, weight[size:], bias[size:]).chunk(2, dim=1)
    return F.linear(states[asked], weight[:size], bias[:size]), key, value


def _laid(own: Any, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    known, key = LAID.get(), (own, torch.is_grad_enabled())
    if known is None or key not in known:
        layers = own.query, own.key, own.value
        weight, bias = (torch.cat([getattr(layer, name) for layer in layers]).to(kind) for name in ("weight", "bias"))
        if known is None:
            return weight, bias
        known[key] = weight, bias
    return known[key]
