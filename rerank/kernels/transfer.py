"""To a GPU without waiting for it."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

Moved = TypeVar("Moved")


def sent(value: Moved, device: torch.device) -> Moved:
    """A tensor, or what has tensors and moves as one, on a device; the host does not wait for the copy.

    A copy is only asynchronous from pinned memory: from any other, the driver waits.
    """
    if isinstance(value, Tensor) and device.type == "cuda" and value.device.type == "cpu" and torch.cuda.is_available():
        value = value.pin_memory()
    return value.to(device, non_blocking=True)  # type: ignore[attr-defined,no-any-return]
