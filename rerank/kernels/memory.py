"""Free memory, the memory that graphs hold, errors without memory, and copies to a GPU."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt, as in glibc's malloc.h."""

CGROUP = Path("/sys/fs/cgroup")


@contextmanager
def kept(module: torch.nn.Module) -> Iterator[dict[int, torch.UntypedStorage]]:
    """Collect what the graphs that are built inside keep for their backward passes, without the module's parameters."""
    own = {parameter.untyped_storage()._cdata for parameter in module.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            storages[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield storages


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that this process may still take on a device; None if unknown.

    On a CPU this is what Linux calls available, or what the control group allows if that is less, divided by the
    processes that the launcher started on this machine.
    """
    if device.type == "cuda":
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + idle
    if device.type != "cpu" or not Path("/proc/meminfo").is_file():
        return None
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    free = next((int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"), None)
    limit = CGROUP / "memory.max"
    if free is not None and limit.is_file() and (allowed := limit.read_text().strip()) != "max":
        used = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        free = max(0, min(free, int(allowed) - int(used["anon"])))
    return None if free is None else free // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def keep_freed() -> None:
    """Let this process keep up to a gigabyte that it frees, if the C library is glibc.

    Every step frees the memory of its graph and takes as much again. glibc returns most of it to the system in between,
    which clears it page by page: a tenth of a step.
    """
    if sys.platform != "linux" or not hasattr(library := ctypes.CDLL(None), "mallopt"):
        return
    # The first one set stops glibc from raising both by itself; older ones take no more than half an arena's heap.
    if library.mallopt(M_MMAP_THRESHOLD, 1 << 30) or library.mallopt(M_MMAP_THRESHOLD, 32 << 20):
        library.mallopt(M_TRIM_THRESHOLD, 1 << 30)


def return_freed() -> None:
    """Return the memory that this process has freed to the system, if the C library is glibc.

    A checkpointed pass leaves small parts of its graph between the large blocks that it frees. glibc hardly uses such
    blocks again, so that the memory of a list would grow with its documents.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


RAN_OUT = ("DefaultCPUAllocator", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""Words of PyTorch's other errors without memory: on a CPU, in the driver, in cuBLAS, in cuDNN."""


def out_of_memory(error: BaseException) -> bool:
    """Tell if an error says that memory ran out."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in RAN_OUT)


def sent(value: Any, device: torch.device) -> Any:
    """Move a tensor, or an object with tensors, to a device without waiting for the copy.

    A copy is only asynchronous from pinned memory: from any other, the driver waits.
    """
    if isinstance(value, Tensor) and device.type == "cuda" and value.device.type == "cpu" and torch.cuda.is_available():
        value = value.pin_memory()
    return value.to(device, non_blocking=True)
