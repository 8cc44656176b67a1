"""Precision of the encoder: bf16, fp16 or float32."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

Precision = Literal["auto", "bf16", "fp16", "fp32"]

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def resolve(precision: Precision, device: torch.device, bf16: bool = True) -> tuple[Precision, str]:
    """Resolve ``auto`` on a device, and give the reason.

    bf16 where the hardware multiplies in it: a GPU that supports it, a CPU with AMX or AVX512-BF16. Elsewhere bf16
    is emulated and slower than float32. A GPU without it gets fp16, whose gradients are scaled while they are summed.
    Models that gain little from it (``bf16`` false) stay in float32.
    """
    if precision != "auto":
        return precision, "as asked"
    if not bf16:
        return "fp32", "the network is small"
    if device.type == "cuda":
        return ("bf16", "the GPU has it") if torch.cuda.is_bf16_supported(False) else ("fp16", "the GPU has no bf16")
    if device.type == "cpu":
        flags = cpu_flags() & {"amx_bf16", "avx512_bf16"}
        return ("bf16", f"the CPU has {', '.join(sorted(flags))}") if flags else ("fp32", "the CPU has no fast bf16")
    return "fp32", f"on {device.type}"


@cache
def cpu_flags() -> frozenset[str]:
    """Return the CPU's features as Linux names them; empty elsewhere."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    return next((frozenset(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), frozenset())


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """Return the context in which a model scores in this precision (head and losses step out of it)."""
    return torch.autocast(device.type, HALF.get(precision, torch.bfloat16), enabled=precision in HALF)


@contextmanager
def exact_float32() -> Iterator[None]:
    """Compute float32 products exactly, even if this process asked for TF32 or bf16.

    Encoders run in half precision, by autocast. Heads, losses and small networks are in float32 so that scores do not
    tie, and a score must not depend on what the process did before.
    """
    backends: Any = torch.backends
    products = backends.cuda.matmul, backends.mkldnn.matmul
    before = [product.fp32_precision for product in products]
    for product in products:
        product.fp32_precision = "ieee"
    try:
        yield
    finally:
        for product, precision in zip(products, before, strict=True):
            product.fp32_precision = precision


def on_cpu() -> bool:
    """Tell if there is no accelerator; Accelerate must know, or it does not see the processes of a CPU run."""
    return not torch.accelerator.is_available()


def own_device() -> torch.device:
    """Return this process's accelerator, or the CPU."""
    kind = torch.accelerator.current_accelerator(check_available=True)
    number = max(0, int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu") if kind is None else torch.device(kind.type, number % torch.accelerator.device_count())
