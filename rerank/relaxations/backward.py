"""Arithmetic without autocast, and backward passes written by hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def no_autocast(tensor: Tensor) -> AbstractContextManager[Any]:
    """Turn autocast off in a block, on the device of this tensor, so that operations keep the dtype of arguments."""
    device = tensor.device.type
    running = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if running else nullcontext()


def full_precision(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward that has no derivative of its own, so that it always runs without autocast."""

    @once_differentiable
    @wraps(backward)
    def run(ctx: Any, gradient: Tensor) -> Any:
        with no_autocast(gradient):
            return backward(ctx, gradient)

    return run


class WithGradient(torch.autograd.Function):
    """A value of each list, ``[B]``, whose gradient ``[B, N]`` is known.

    >>> scores = torch.tensor([[1.0, 2.0]], requires_grad=True)
    >>> WithGradient.apply(scores, torch.tensor([3.0]), torch.tensor([[0.5, -0.5]])).sum().backward()
    >>> scores.grad
    tensor([[ 0.5000, -0.5000]])
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * slope[:, None], None, None
