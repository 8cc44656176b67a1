"""Products of scoring on a CPU in bf16, with the bias added where they are computed.

``nn.Linear`` copies the bias into every row of the result first, and adds the product to it. oneDNN adds the bias
itself, which saves a pass over the result. PyTorch has that operation for what inductor compiles, without a gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rerank.kernels.ways import ways_of

Halves: TypeAlias = Mapping[nn.Module, tuple[Tensor, Tensor]]
"""Weights and biases in bf16."""

APART = 0.02
"""How far the operation may be from PyTorch's products, both rounded to bf16, as a share of the largest number."""

_halves: ContextVar[Halves | None] = ContextVar("halves", default=None)
"""What this thread scores with."""


class Linear(nn.Linear):
    """``nn.Linear``, which within :func:`scoring_with` adds its bias where the product is computed."""

    def forward(self, states: Tensor) -> Tensor:
        """The product, in bf16 where autocast says so."""
        halves = _halves.get()
        if halves is None or self not in halves or not torch.is_autocast_enabled("cpu"):
            return super().forward(states)
        return product(states, *halves[self])


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


def halves_of(modules: Iterable[nn.Module]) -> Halves:
    """The weights in bf16 of the products that take this way, for one pass over many chunks in several threads."""
    found: dict[nn.Module, tuple[Tensor, Tensor]] = {}
    for module in modules:
        ways = ways_of(module)
        if isinstance(module, Linear) and ways is not None and ways.products == "own":
            found[module] = (module.weight.detach().bfloat16(), module.bias.detach().bfloat16())
    return found


@contextmanager
def scoring_with(halves: Halves) -> Iterator[None]:
    """Let this thread's products take these weights."""
    token = _halves.set(halves)
    try:
        yield
    finally:
        _halves.reset(token)
