"""Arithmetic out of autocast's reach, and backward passes written by hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def no_autocast(tensor: Tensor) -> AbstractContextManager[Any]:
    """A block in which operations have the dtype of their arguments, on the device of this tensor."""
    device = tensor.device.type
    running = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if running else nullcontext()


def full_precision(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a backward that has no derivative of its own: autocast is off in it, wherever it is called from."""

    @once_differentiable
    @wraps(backward)
    def run(ctx: Any, gradient: Tensor) -> Any:
        with no_autocast(gradient):
            return backward(ctx, gradient)

    return run
