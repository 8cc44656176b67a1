"""Products of scoring on a CPU in bf16, with the bias added where they are computed.

``nn.Linear`` copies the bias into every row of the result first, and adds the product to it. oneDNN adds the bias
itself, which saves a pass over the result. PyTorch has that operation for what inductor compiles, without a gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rerank.kernels.implementations import implementations_of

APART = 0.02
"""How far the operation may be from PyTorch's products, both rounded to bf16, as a share of the largest number."""


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
    chosen = [
        m for m in modules if isinstance(m, Linear) and (ways := implementations_of(m)) and ways.products == "own"
    ]
    for module in chosen:
        module.in_bf16 = module.weight.detach().bfloat16(), module.bias.detach().bfloat16()
    try:
        yield
    finally:
        for module in chosen:
            module.in_bf16 = None
