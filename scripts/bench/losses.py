"""Losses: their time and memory, and what an epoch of feature vectors takes.

    python scripts/bench/losses.py time [--quick] [--threads 1] [--seconds 3] [--device cuda] [--only NAME ...]
    python scripts/bench/losses.py epoch [--queries 18919] [--threads 2] [--precision fp32] [--only ListNet]

Each prints a Markdown table: time that of docs/internals/loss-speed.md, epoch that of docs/letor.md.

time: forward + backward over list lengths, next to allRank and sentence-transformers. Contenders
    of a row take short turns, many times over, so that a busy machine slows all of them alike. Times are the least of
    all repetitions (and their median), by the clock on the wall; with ``--threads 1`` by that of the processor, which
    other programs disturb less. Memory is what the graph keeps for the backward pass ("graph") and the most that is
    allocated at any time ("peak").
epoch: seconds on made lists of WEB30K's shape, next to the bare matrix products: 136 features, lengths
    log-normal around 120, up to 1,251, all of them whole. The network is an MLP of 136-1024-1, a step takes 128 lists,
    as rerank's trainer does it (batches, scores, loss, gradient, Adam). *Products* are the network's matrix products
    alone, forward and weight gradients, on the same rows, timed before and after each loss (the mean is taken).
"""

from __future__ import annotations

import argparse
import platform
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from weakref import WeakSet

import numpy as np
import peers
import pyarrow as pa
import torch
from common import head, parser_of, row
from torch import Tensor
from tqdm import tqdm

from rerank.lists import Lists
from rerank.lists.columns import Column
from rerank.lists.sampling import Full
from rerank.lists.store import Store
from rerank.losses import (
    ApproxNDCG,
    DirectMetric,
    LambdaLoss,
    ListNet,
    Loss,
    NeuralNDCG,
    SmoothINDCG,
    TwinSigmoidNDCG,
    load_all,
)
from rerank.models.vectors.mlp import MLP
from rerank.relaxations import Approx, FastSoftSort, NeuralSort, OptimalTransport, SmoothI, SoftSort, TwinSigmoid
from rerank.training.batches import Batches
from rerank.training.step import Gradients, MemoryLimits

EXP = "nDCG(dcg='exp-log2')"
SHAPES = {10: 64, 40: 64, 150: 64, 240: 64, 1000: 16, 5000: 1}  # length -> lists in a batch


@dataclass
class Measured:
    """Seconds of every step, and bytes."""

    seconds: list[float] = field(default_factory=list)
    kept: int = 0
    peak: int = 0

    @property
    def least(self) -> float:
        """Seconds of the fastest step, the one that other programs disturbed least."""
        return min(self.seconds)

    def __str__(self) -> str:
        return f"{_ms(self.least)} ({_ms(statistics.median(self.seconds))}) ms"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"


def _mb(size: int) -> str:
    return f"{size / 1e6:.3g} MB"


def batch_of(batch: int, length: int, relevant: int | None, device: str) -> tuple[Tensor, Tensor]:
    """Normal scores; grades of MSLR-WEB30K's proportions, or so many relevant documents of grades 1 to 4."""
    generator = torch.Generator().manual_seed(length)
    if relevant is None:
        shares = torch.tensor([0.52, 0.32, 0.13, 0.02, 0.01]).cumsum(0)
        grades = torch.bucketize((torch.arange(length) + 0.5) / length, shares).clamp(max=4).float()
    else:
        grades = torch.zeros(length)
        grades[:relevant] = torch.arange(relevant) % 4 + 1
    labels = torch.stack([grades[torch.randperm(length, generator=generator)] for _ in range(batch)])
    return torch.randn(batch, length, generator=generator).to(device), labels.to(device)


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


class _Kept:
    """A tensor that a graph keeps, for as long as it does."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def kept_bytes(step: peers.Step, scores: Tensor, labels: Tensor) -> int:
    """Bytes of the distinct tensors that the graph keeps, without the input."""
    kept: WeakSet[_Kept] = WeakSet()

    def keep(tensor: Tensor) -> _Kept:
        kept.add(holder := _Kept(tensor))
        return holder

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda holder: holder.tensor):
        value = step(scores.requires_grad_(), labels)  # held, so that its graph is
    storages = {holder.tensor.untyped_storage().data_ptr(): holder.tensor.untyped_storage().nbytes() for holder in kept}
    del value
    for given in (scores, labels):
        storages.pop(given.untyped_storage().data_ptr(), None)
    return sum(storages.values())


def peak_bytes(step: peers.Step, scores: Tensor, labels: Tensor, device: str) -> int:
    """The most bytes that forward and backward hold at any time."""
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


def measure(
    contenders: dict[str, peers.Step], scores: Tensor, labels: Tensor, seconds: float, device: str
) -> dict[str, Measured]:
    """Every contender on the same lists, in turns, for about so many seconds each."""
    results = {name: Measured() for name in contenders}
    clock = time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter

    def turn(name: str) -> float:
        leaf = scores.clone().requires_grad_()
        _wait(device)
        start = clock()
        contenders[name](leaf, labels).backward()
        _wait(device)
        return clock() - start

    first = {name: turn(name) for name in contenders}
    bursts = {name: max(1, min(20, int(BURST / took))) for name, took in first.items()}
    rounds = max(3, min(15, int(seconds / max(first.values()))))
    for _ in range(rounds):
        for name, steps in bursts.items():
            if first[name] < 0.5:
                turn(name)  # warms up code and caches after the others' turns
            results[name].seconds += [turn(name) for _ in range(steps)]
    for name, step in contenders.items():
        results[name].kept = kept_bytes(step, scores.clone(), labels)
        results[name].peak = peak_bytes(step, scores.clone(), labels, device)
    return results


def wanted(name: str, options: argparse.Namespace) -> bool:
    """Whether a row was asked for."""
    return not options.only or any(part in name for part in options.only)


def contenders() -> dict[str, dict[str, peers.Step]]:
    """Every loss, with those that compute the same thing."""
    relaxations = {
        "ApproxNDCG": Approx(alpha=10),
        "TwinSigmoidNDCG": TwinSigmoid(alpha=1),
        "SmoothINDCG": SmoothI(),
        "NeuralNDCG": NeuralSort(sinkhorn=50),
        "SoftSortNDCG": SoftSort(tau=1),
        "FastSoftSortNDCG": FastSoftSort(strength=1),
        "OptimalTransportNDCG": OptimalTransport(),
    }
    ours: dict[str, Callable[..., Tensor]] = {key: DirectMetric(EXP, value) for key, value in relaxations.items()}
    surrogates = {name: kind for name, kind in load_all().items() if kind.__module__ not in DIRECT}
    ours |= {name: kind() for name, kind in surrogates.items()}
    ours["LambdaLoss@10"] = LambdaLoss(measure="nDCG@10")
    others = {"allRank": peers.allrank(), "s-t": peers.sentence_transformers()}
    return {
        name: {"ours": step} | {who: known[name] for who, known in others.items() if name in known}
        for name, step in ours.items()
    }


DIRECT = ("rerank.losses.direct", "rerank.losses.shorthands")
BURST = 0.1  # seconds of a contender's turn, if a step is shorter
HEAVY = 2**31  # bytes that one step of a contender may hold; beyond it is not run


def _bytes_of(who: str, name: str, batch: int, length: int) -> int:
    """Roughly what a contender holds, to leave out what would exhaust the machine."""
    rounds = {"NeuralNDCG": 100, "OptimalTransportNDCG": 200}.get(name, 16)
    if who == "ours":
        return 4 * batch * length**2 * (4 if name in ("NeuralNDCG", "OptimalTransportNDCG", "SoftSortNDCG") else 0)
    if name in ("ListNet", "ListMLE", "RMSE", "BCE"):
        return 0
    tuples = 200 * length**2 if (who, name) == ("allRank", "RankNet") else 0  # it lists all pairs in Python
    return 4 * batch * length**2 * rounds + tuples


def time_and_memory(options: argparse.Namespace) -> None:
    """Every loss over list lengths; ratios are the contender's over ours."""
    options.seconds = 0.0 if options.quick else options.seconds
    names = ("torch", "allRank", "sentence-transformers", "rerank-direct")
    packages = ", ".join(f"{name} {_version(name)}" for name in names)
    print(f"{_hardware(options.device)}; {packages}; {datetime.now(UTC):%Y-%m-%d}.\n")
    head("loss", "batch × N", "ours", "graph", "peak", "others: time ratio (graph ratio)")
    shapes = {10: 4, 40: 2} if options.quick else SHAPES
    rows = {name: everyone for name, everyone in contenders().items() if wanted(name, options)}
    for name, everyone in tqdm(rows.items(), desc="lengths", disable=None):
        for length, batch in shapes.items():
            fitting = {who: step for who, step in everyone.items() if _bytes_of(who, name, batch, length) < HEAVY}
            if "ours" not in fitting:
                continue
            scores, labels = batch_of(batch, length, None, options.device)
            others = measure(fitting, scores, labels, options.seconds, options.device)
            ours = others.pop("ours")
            ratios = [
                f"{who} {other.least / ours.least:.1f} ({other.kept / max(ours.kept, 1):.1f})"
                for who, other in others.items()
            ]
            row(name, f"{batch} × {length}", ours, _mb(ours.kept), _mb(ours.peak), ", ".join(ratios) or "–")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _hardware(device: str) -> str:
    if device != "cpu":
        return torch.cuda.get_device_name()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
        return f"{names[0]}, {torch.get_num_threads()} threads"
    except (OSError, IndexError):
        return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


WIDTH, HIDDEN, BATCH = 136, 1024, 128
EPOCHS: dict[str, Loss] = {
    "ListNet": ListNet(),
    "ApproxNDCG": ApproxNDCG(alpha=10),
    "TwinSigmoid-nDCG": TwinSigmoidNDCG(alpha=1),
    "SmoothI-nDCG@10": SmoothINDCG("nDCG(dcg='exp-log2')@10"),
    "SmoothI-nDCG": SmoothINDCG(),
    "NeuralNDCG": NeuralNDCG(),
}
GOALS = {"SmoothI-nDCG": 4, "NeuralNDCG": 10}
"""Times the products; 2 for the others."""


def web30k(queries: int, seed: int = 0) -> Lists:
    """Lists of WEB30K's shape: lengths from 1 to 1,251, grades 0 to 4 in its proportions."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(4.6, 0.62, queries), 1, 1251).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = int(offsets[-1])
    values = rng.standard_normal(rows * WIDTH, dtype=np.float32)
    grades = rng.choice(5, size=rows, p=[0.52, 0.23, 0.18, 0.05, 0.02]).astype(np.int16)
    ids = pa.array(np.arange(rows)).cast(pa.string())
    candidates = {"query": np.repeat(np.arange(queries), lengths), "document": np.arange(rows), "grade": grades}
    store = Store(
        {"collection": {"name": "made"}, "order": None, "judgments": "grades", "candidates": "made"},
        tables={
            "queries": pa.table({"query_id": [f"q{i}" for i in range(queries)]}),
            "documents": pa.table({"doc_id": ids}),
            "candidates": pa.table(candidates | {"added": np.zeros(rows, np.uint8)}),
            "ends": pa.table({"end": offsets[1:], "added": np.zeros(queries, np.int32)}),
        },
        columns={"features": Column(values.reshape(rows, WIDTH), tuple(map(str, range(1, WIDTH + 1))))},
    )
    return Lists.of(store)


def seconds_on(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds of some work, the device's included."""
    _wait(device.type)
    started = time.perf_counter()
    work()
    _wait(device.type)
    return time.perf_counter() - started


def products(features: torch.Tensor, rows: int, precision: str) -> float:
    """Seconds of the network's matrix products over all documents, ``rows`` at a time."""
    device = features.device
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    first, last = (torch.randn(shape, device=device).to(dtype) for shape in ((WIDTH, HIDDEN), (HIDDEN, 1)))
    features = features if dtype == torch.float32 else features.to(dtype)

    def work() -> None:
        for start in range(0, len(features), rows):
            x = features[start : start + rows]
            hidden = x @ first
            hidden @ last
            x.t() @ hidden

    return seconds_on(device, work)


def seconds_of_epoch(lists: Lists, model: MLP, loss: Loss, precision: str) -> float:
    """Seconds of an epoch of training, without validation."""
    inputs = model.inputs(lists)
    gradients = Gradients(model, inputs, lists, loss, precision, MemoryLimits(model.budget))  # type: ignore[arg-type]
    batches = Batches(lists, np.arange(len(lists)), Full(), BATCH, None, 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def work() -> None:
        for number, groups in enumerate(batches.epoch(0)):
            gradients.accumulate(groups, number)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return seconds_on(next(model.parameters()).device, work)


def epoch(options: argparse.Namespace) -> None:
    """Seconds of an epoch per loss."""
    device = torch.device(options.device)
    lists = web30k(options.queries)
    print(f"{len(lists):,} lists, {lists.size:,} documents, longest {lists.lengths.max():,}", end="; ")
    print(
        f"{options.precision}, {options.threads} threads, {device}, torch {torch.__version__}, {platform.machine()}\n"
    )
    head("loss", "products", "rerank", "ratio", "to reach")
    rows = int(lists.lengths.mean() * BATCH)
    for name, loss in EPOCHS.items():
        if not wanted(name, options):
            continue
        torch.manual_seed(0)
        model = MLP(hidden=[HIDDEN])
        model.prepare(lists, 42)
        model.to(device)
        values = model.inputs(lists).values
        seconds_of_epoch(lists.select(np.arange(min(BATCH, len(lists)))), model, loss, options.precision)  # warm
        before = products(values, rows, options.precision)
        ours = seconds_of_epoch(lists, model, loss, options.precision)
        floor = (before + products(values, rows, options.precision)) / 2
        row(name, f"{floor:.2f} s", f"{ours:.2f} s", f"{ours / floor:.2f}", GOALS.get(name, 2))
    print(f"\npeak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")


def main() -> None:
    """Measure what was asked for."""
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["time", "epoch"])
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--only", nargs="*", help="rows whose name has one of these in it")
    parser.add_argument("--quick", action="store_true", help="time: tiny lists and few steps: does it run?")
    parser.add_argument("--seconds", type=float, default=3.0, help="time: about how long a contender of a row is timed")
    parser.add_argument("--queries", type=int, default=18_919, help="epoch: lists; WEB30K's fold has 18,919")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="epoch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    {"time": time_and_memory, "epoch": epoch}[options.what](options)


if __name__ == "__main__":
    main()
