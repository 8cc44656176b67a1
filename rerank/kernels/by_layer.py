"""Layers of which the graph keeps the inputs alone: the backward pass computes each again, with the same dropout.

For a text whose graph does not fit memory: training then takes a third longer, and keeps a layer's graph at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn

from rerank.kernels.flat_attention import SEEN, having


def keep_inputs_alone(model: nn.Module) -> bool:
    """Let the Transformers networks in a model do so; whether there are some that know it and did not yet."""
    able = [module for module in model.modules() if getattr(module, "supports_gradient_checkpointing", False)]
    able = [module for module in able if not getattr(module, "is_gradient_checkpointing", True)]
    for module in able:
        module.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": _as_before})  # type: ignore[operator]
    return bool(able)


def called(function: Callable[..., Any], layer: Any, *given: Any) -> Any:
    """``function(layer, *given)``, which :func:`keep_inputs_alone` reaches as it reaches the layer's own pass."""
    if layer.training and getattr(layer, "gradient_checkpointing", False):
        return layer._gradient_checkpointing_func(function, layer, *given)
    return function(layer, *given)


def _as_before() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Where a layer is computed, and where it is computed again, maybe by a thread that has seen none of it."""
    return nullcontext(), having(SEEN, SEEN.get())
