"""Time and memory of every loss, forward and backward, over list lengths.

    python scripts/bench/losses.py [--threads 1] [--seconds 3] [--device cuda] [--only NAME ...]

prints a Markdown table like those of docs/internals/speed.md. Times are the least of all repetitions (and their
median), by the clock on the wall; with ``--threads 1`` by that of the processor, which other programs disturb less.
Memory is what the graph keeps for the backward pass ("graph") and the most that is allocated at any time ("peak").
"""

from __future__ import annotations

import platform
import re
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch
from common import head, parser_of, row
from torch import Tensor

import rerank
from rerank import losses, relaxations
from rerank.kernels.memory import kept
from rerank.losses import DirectMetric, LambdaLoss, NeuralNDCG
from rerank.losses.shorthands import NDCG

SHAPES = {10: 64, 40: 64, 150: 64, 240: 64, 1000: 16, 5000: 1}  # length -> lists in a batch

Step = Callable[[Tensor, Tensor], Tensor]
"""Scores and labels ``[B, N]`` -> a scalar loss."""


def batch_of(batch: int, length: int, device: str) -> tuple[Tensor, Tensor]:
    """Draw normal scores, and grades with the proportions of MSLR-WEB30K."""
    generator = torch.Generator().manual_seed(length)
    shares = torch.tensor([0.52, 0.32, 0.13, 0.02, 0.01]).cumsum(0)
    grades = torch.bucketize((torch.arange(length) + 0.5) / length, shares).clamp(max=4).float()
    labels = torch.stack([grades[torch.randperm(length, generator=generator)] for _ in range(batch)])
    return torch.randn(batch, length, generator=generator).to(device), labels.to(device)


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def kept_bytes(step: Step, scores: Tensor, labels: Tensor) -> int:
    """Add up the bytes of the distinct tensors that the graph keeps, without the input."""
    with kept(torch.nn.ParameterList([scores, labels])) as storages:
        step(scores.requires_grad_(), labels)
    return sum(storage.nbytes() for storage in storages.values())


def peak_bytes(step: Step, scores: Tensor, labels: Tensor, device: str) -> int:
    """Measure the peak memory of forward and backward in bytes."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(scores.requires_grad_(), labels).backward()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step(scores.requires_grad_(), labels).backward()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def seconds_of(step: Step, scores: Tensor, labels: Tensor, seconds: float, device: str) -> list[float]:
    """Time repetitions for about this many seconds in all."""
    clock = time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter

    def once() -> float:
        leaf = scores.clone().requires_grad_()
        _wait(device)
        start = clock()
        step(leaf, labels).backward()
        _wait(device)
        return clock() - start

    first = once()
    return [once() for _ in range(max(3, min(300, int(seconds / first))))]


def contenders() -> dict[str, Step]:
    """Make nDCG with every relaxation, and all other losses, as in their papers."""
    steps: dict[str, Step] = {name: getattr(losses, name)() for name in losses.LOSSES if name != "DirectMetric"}
    others = (relaxations.SoftSort(), relaxations.FastSoftSort(), relaxations.OptimalTransport())
    steps |= {f"nDCG, {type(one).__name__}": DirectMetric(NDCG, one) for one in others}
    return steps | {"NeuralNDCG": NeuralNDCG(sinkhorn=50), "LambdaLoss@10": LambdaLoss(measure="nDCG@10")}


def _hardware(device: str) -> str:
    if device != "cpu":
        return torch.cuda.get_device_name()
    names = re.findall(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return f"{[*names, platform.machine()][0]}, {torch.get_num_threads()} threads"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--only", nargs="*", default=[""], help="rows whose name has one of these in it")
    parser.add_argument("--seconds", type=float, default=3.0, help="about how long a row is timed")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    packages = f"torch {torch.__version__}, rerank {rerank.__version__}"
    print(f"{_hardware(options.device)}; {packages}; {datetime.now(UTC):%Y-%m-%d}.\n")
    head("loss", "batch × N", "ms (median)", "graph", "peak")
    for name, step in contenders().items():
        for length, batch in SHAPES.items() if any(part in name for part in options.only) else ():
            scores, labels = batch_of(batch, length, options.device)
            took = seconds_of(step, scores, labels, options.seconds, options.device)
            memory = kept_bytes(step, scores.clone(), labels), peak_bytes(step, scores.clone(), labels, options.device)
            times = f"{1e3 * min(took):.3g} ({1e3 * statistics.median(took):.3g})"
            row(name, f"{batch} × {length}", times, *(f"{size / 1e6:.3g} MB" for size in memory))


if __name__ == "__main__":
    main()
