"""Backward passes written by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def full_precision(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a backward that has no derivative of its own: autocast is off in it, wherever it is called from."""

    @once_differentiable
    @wraps(backward)
    def run(ctx: Any, gradient: Tensor) -> Any:
        with torch.autocast(gradient.device.type, enabled=False):
            return backward(ctx, gradient)

    return run
