"""To a GPU without waiting for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def sent(value: Any, device: torch.device) -> Any:
    """A tensor, or what has tensors and moves as one, on a device; the host does not wait for the copy.

    A copy is only asynchronous from pinned memory: from any other, the driver waits.
    """
    if isinstance(value, Tensor) and device.type == "cuda" and value.device.type == "cpu" and torch.cuda.is_available():
        value = value.pin_memory()
    return value.to(device, non_blocking=True)
