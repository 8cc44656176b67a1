"""Which of two ways to the same numbers is faster on this processor, as measured.

One with AMX has other products than one without, so both are timed, for less than a second, on random numbers of the
model's shapes. The choice is kept in the cache folder, by processor, version of PyTorch and shapes.
"""

from __future__ import annotations

import json
import logging
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from rerank.errors import UserError
from rerank.files import atomic_write, cache_folder, digest
from rerank.kernels.dropout import Dropout
from rerank.kernels.flat_attention import Sequences, attend
from rerank.kernels.products import product, works
from rerank.kernels.ways import Way, Ways, use_ways

log = logging.getLogger("rerank")

TOKENS, LENGTH = 2048, 256
"""Tokens of the chunk that is timed, and of each of its texts."""

ROUNDS, ENOUGH = 5, 0.1
"""Each way of each kind is timed so often, but for no longer than so many seconds."""

RATE = 0.1
"""Dropout of what is timed."""


def faster(heads: int, size: int, kind: torch.dtype, device: torch.device) -> Ways:
    """The faster ways for attention of these shapes, as measured now or before.

    Args:
        heads: how many there are.
        size: numbers of each.
        kind: the type that the encoder computes in.
        device: where.
    """
    about = {
        "processor": processor(device),
        "threads": torch.get_num_threads() if device.type == "cpu" else 1,
        "torch": torch.__version__,
        "heads": heads,
        "size": size,
        "type": str(kind).removeprefix("torch."),
        "kinds": [field.name for field in fields(Ways)],
    }
    path = cache_folder() / "kernels" / f"{digest(json.dumps(about, sort_keys=True))}.json"
    if (found := _kept(path)) is not None:
        return found
    started = time.perf_counter()
    milliseconds = measure(heads, size, kind, device)
    ways = Ways(**{name: min(of, key=lambda way: of[way]) for name, of in milliseconds.items()})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            json.dump({"about": about, "ways": asdict(ways), "milliseconds": milliseconds}, file, indent=2)
    except (OSError, UserError) as error:
        log.info("kernels: measured anew each time, since %s cannot be written (%s)", path, error)
    times = ", ".join(f"{name} {of['own']:.2f} / {of['torch']:.2f}" for name, of in milliseconds.items())
    took = time.perf_counter() - started
    log.info("kernels measured in %.1f s (ours / PyTorch's, ms for %d tokens): %s", took, TOKENS, times)
    return ways


def _kept(path: Path) -> Ways | None:
    """What was measured before; None where nothing was, or the file is not whole: measuring again is cheap."""
    try:
        return Ways.of(json.loads(path.read_text(encoding="utf-8"))["ways"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def processor(device: torch.device) -> str:
    """The name of a processor; on a CPU with those of its features that decide how fast products are."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    told = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    values = {name.strip(): value.strip() for name, value in told.items()}
    features = [flag for flag in values.get("flags", "").split() if flag.startswith(("amx", "avx512"))]
    name = values.get("model name") or platform.processor() or platform.machine()
    return " ".join([name, *(values.get(key, "") for key in ("cpu family", "model")), *sorted(features)])


def measure(heads: int, size: int, kind: torch.dtype, device: torch.device) -> dict[str, dict[Way, float]]:
    """Milliseconds of each kind of work by each way, the best of a few rounds.

    The two ways take turns, so that what else a machine does slows both.
    """
    sequences = Sequences.of([LENGTH] * (TOKENS // LENGTH)).to(device)
    made = torch.Generator().manual_seed(0)
    draw = [torch.randn(TOKENS, heads, size, generator=made).to(device, kind) for _ in range(3)]
    wide = torch.randn(TOKENS, heads * size, generator=made).to(device, kind)

    def attention(way: Way, rate: float, backwards: bool) -> None:
        states = [state.detach().requires_grad_(backwards) for state in draw]
        query, key, value = states
        found = attend(query, key, value, sequences, size**-0.5, rate, False, way)
        if backwards:
            torch.autograd.grad(found, states, draw[0])

    def dropout(way: Way) -> None:
        module = Dropout(RATE)
        use_ways(module, Ways.all(way))
        states = wide.detach().requires_grad_()
        torch.autograd.grad(module(states), states, wide)

    weight = torch.randn(heads * size, heads * size, generator=made).to(device, kind)

    def products(way: Way) -> None:
        with torch.inference_mode():
            product(wide, weight, weight[0]) if way == "own" else F.linear(wide, weight, weight[0])

    kinds: dict[str, Callable[[Way], None]] = {
        "scoring": lambda way: attention(way, 0.0, False),
        "training": lambda way: attention(way, 0.0, True),
        "dropped": lambda way: attention(way, RATE, True),
        "dropout": dropout,
    }
    if device.type == "cpu" and kind == torch.bfloat16 and works():
        kinds["products"] = products
    state = torch.get_rng_state()
    own = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        return {name: _times(work, device) for name, work in kinds.items()}
    finally:
        torch.set_rng_state(state)
        if own is not None:
            torch.cuda.set_rng_state(own, device)


def _times(work: Callable[[Way], None], device: torch.device) -> dict[Way, float]:
    best: dict[Way, float] = {"own": float("inf"), "torch": float("inf")}
    for way in best:
        work(way)  # code is generated, memory mapped
    started = time.perf_counter()
    for _ in range(ROUNDS):
        for way in best:
            best[way] = min(best[way], 1000 * _seconds(lambda way=way: work(way), device))  # type: ignore[misc]
        if time.perf_counter() - started > ENOUGH:
            break
    return best


def _seconds(work: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started
