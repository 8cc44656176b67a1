"""Products of fewer passes: with the bias added where they are computed, and queries, keys and values at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rerank.kernels.flat_attention import having
from rerank.kernels.implementations import implementations_of

APART = 0.02
"""How far the operation may be from PyTorch's products, both rounded to bf16, as a share of the largest number."""

LAID: ContextVar[dict[tuple[Any, bool], tuple[Tensor, Tensor]] | None] = ContextVar("laid", default=None)
"""Weights and biases that lie end to end, by attention and whether there is a graph."""


class Linear(nn.Linear):
    """``nn.Linear``, which within :func:`scoring_products` adds its bias where the product is computed."""

    in_bf16: tuple[Tensor, Tensor] | None = None
    """Weight and bias in bf16, as long as many chunks are scored by them."""

    def forward(self, states: Tensor) -> Tensor:
        if self.in_bf16 is None or torch.is_grad_enabled() or not torch.is_autocast_enabled("cpu"):
            return super().forward(states)
        return product(states, *self.in_bf16)


def product(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """States times a weight, and the bias, in bf16, without a gradient."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(states.bfloat16(), weight, bias, "none", [], "")
    return found


def use_products(network: nn.Module) -> None:
    """Put :class:`Linear` where ``nn.Linear`` with a bias is, if this PyTorch has the operation."""
    if not works():
        return
    for module in network.modules():
        if type(module) is nn.Linear and module.bias is not None:
            module.__class__ = Linear  # its hooks and name stay


@cache
def works() -> bool:
    """Whether the operation exists and gives what PyTorch's product does."""
    drawn = torch.Generator().manual_seed(0)
    states, weight, bias = (torch.randn(*shape, generator=drawn).bfloat16() for shape in ((5, 24), (16, 24), (16,)))
    try:
        with torch.inference_mode():
            apart = (product(states, weight, bias) - F.linear(states, weight, bias)).abs().max()
            return bool(apart <= APART * F.linear(states, weight, bias).abs().max())
    except Exception:  # a PyTorch without oneDNN, or one in which the operation has moved
        return False


@contextmanager
def scoring_products(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let products that take this way keep their weights in bf16, for many chunks in several threads."""
    ours = [(module, implementations_of(module)) for module in modules if isinstance(module, Linear)]
    chosen = [module for module, ways in ours if ways and ways.products == "own"]
    for module in chosen:
        module.in_bf16 = module.weight.detach().bfloat16(), module.bias.detach().bfloat16()
    try:
        yield
    finally:
        for module in chosen:
            module.in_bf16 = None


def weights_stay() -> AbstractContextManager[None]:
    """Within it weights do not change, and are laid end to end once."""
    return having(LAID, {})


def by_one_product(own: Any, device: str) -> bool:
    """Whether an attention of BERT's kind computes its queries, keys and values at once."""
    return device != "cpu" and all(type(layer) in (nn.Linear, Linear) for layer in (own.query, own.key, own.value))


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
