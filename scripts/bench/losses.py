"""Time and memory of the losses, forward + backward, next to allRank, sentence-transformers and the plain formulas.

    python scripts/bench/losses.py [--quick] [--threads 2] [--seconds 3] [--device cuda] [--only NAME ...]

prints Markdown: the targets with what was reached, then every loss over list lengths. Contenders of a row take short
turns, many times over, so that a busy machine slows all of them alike. Times are the least of all repetitions (and
their median), by the clock on the wall; with ``--threads 1`` by that of the processor, which other programs disturb
less. Memory is what the graph keeps for the backward pass ("kept") and the most that is allocated at any time ("peak").
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from weakref import WeakSet

import peers
import torch
from torch import Tensor
from tqdm import tqdm

from rerank.losses import DirectMetric, LambdaLoss, Loss, RankNet, load_all
from rerank.relaxations import Approx, FastSoftSort, NeuralSort, OptimalTransport, SmoothI, SoftSort, TwinSigmoid

EXP = "nDCG(dcg='exp-log2')"
SHAPES = {10: 64, 40: 64, 150: 64, 240: 64, 1000: 16, 5000: 1}  # length -> lists in a batch


@dataclass
class Measured:
    """Seconds of every step, and bytes."""

    seconds: list[float] = field(default_factory=list)
    kept: int = 0
    peak: int = 0
    value: float = 0.0
    gradient: Tensor = field(default_factory=lambda: torch.zeros(0))

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


def lists(batch: int, length: int, relevant: int | None, device: str) -> tuple[Tensor, Tensor]:
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
        value = contenders[name](leaf, labels)
        value.backward()
        _wait(device)
        took = clock() - start
        results[name].value, results[name].gradient = float(value), leaf.grad
        return took

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


def _same(ours: Measured, other: Measured, factor: float = 1.0, offset: float = 0.0) -> str:
    """How far two contenders agree: ``ours = factor * other + offset``."""
    value = abs(ours.value - factor * other.value - offset) / max(abs(ours.value), 1e-12)
    gradient = (ours.gradient - factor * other.gradient).abs().max() / ours.gradient.abs().max()
    return f"value {value:.0e}, gradient {float(gradient):.0e}"


@dataclass
class Target:
    """A row of the table of targets."""

    title: str
    goal: str
    batch: int
    length: int
    relevant: int | None
    ours: peers.Step
    other: peers.Step | None
    against: str
    faster: float | None = None
    smaller: float | None = None
    offset: float = 0.0
    factor: float = 1.0
    value_too: bool = True


def targets(allrank: dict[str, peers.Step], plain: dict[str, peers.Step]) -> Iterator[Target]:
    """What was promised, one row each."""

    def peer(name: str) -> tuple[peers.Step, str]:
        return (allrank[name], "allRank") if name in allrank else (plain[name], "plain")

    step, against = peer("NeuralNDCG")
    neural = DirectMetric(EXP, NeuralSort(sinkhorn=50))
    offset = 1.0 if against == "allRank" else 0.0
    yield Target("NeuralNDCG", "≥ 20 × faster, ≤ 1/20 memory", 64, 240, None, neural, step, against, 20, 20, offset)
    approx = DirectMetric(EXP, Approx(alpha=10))
    step, against = peer("ApproxNDCG")
    offset = 1.0 if against == "allRank" else 0.0
    yield Target("ApproxNDCG", "≥ 20 × faster, ≤ 1/40 memory", 64, 150, 4, approx, step, against, 20, 40, offset)
    smooth = DirectMetric(EXP, SmoothI())
    yield Target("SmoothI-nDCG", "≥ 5 × faster", 64, 240, None, smooth, plain["SmoothINDCG"], "authors' form", 5)
    pairs = LambdaLoss("ndcg2++", f"{EXP}@10", reduction="sum")
    if "LambdaLoss@10" in allrank:
        step = allrank["LambdaLoss@10"]
        yield Target("LambdaLoss ndcg2++@10", "≥ 20 × faster", 16, 150, None, pairs, step, "allRank", 20)
    step, against = peer("RankNet")
    yield Target("RankNet", "≥ 50 × faster", 16, 150, None, RankNet(), step, against, 50)
    twin = DirectMetric(EXP, TwinSigmoid(alpha=1))
    step = plain["TwinSigmoidNDCG"]
    yield Target("TwinSigmoid nDCG", "see below", 16, 1251, 180, twin, step, "Yu's equations")


def wanted(name: str, options: argparse.Namespace) -> bool:
    """Whether a row was asked for."""
    return not options.only or any(part in name for part in options.only)


def print_targets(options: argparse.Namespace) -> None:
    allrank, plain = peers.allrank(), peers.plain()
    print("| loss | batch × N | against | to reach | faster | memory kept | peak | ours | theirs | difference |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    rows = [row for row in targets(allrank, plain) if wanted(row.title, options)]
    for row in tqdm(rows, desc="targets", disable=None):
        batch, length = (min(row.batch, 2), min(row.length, 40)) if options.quick else (row.batch, row.length)
        relevant = None if row.relevant is None else min(row.relevant, length // 4)
        scores, labels = lists(batch, length, relevant, options.device)
        both = measure({"ours": row.ours, "other": row.other}, scores, labels, options.seconds, options.device)
        ours, other = both["ours"], both["other"]
        faster, smaller = other.least / ours.least, other.kept / max(ours.kept, 1)
        reached = "" if row.faster is None else " ✓" if faster >= row.faster else " ✗"
        kept = "" if row.smaller is None else " ✓" if smaller >= row.smaller else " ✗"
        print(
            f"| {row.title} | {batch} × {length} | {row.against} | {row.goal} | {faster:.1f} ×{reached} "
            f"| 1/{smaller:.0f}{kept} ({_mb(ours.kept)}) | 1/{other.peak / ours.peak:.1f} ({_mb(ours.peak)}) "
            f"| {ours} | {other} | {_same(ours, other, row.factor, row.offset)} |"
        )


def print_growth(options: argparse.Namespace) -> None:
    """What must not grow: SmoothI's memory with the cut-off, twin-sigmoid's with anything but relevant × N."""
    print("\n| loss | batch × N | | time | kept | peak |\n|---|---|---|---|---|---|")
    small = options.quick
    scores, labels = lists(2 if small else 64, 40 if small else 240, None, options.device)
    for k in (10, 20, scores.shape[1]) if wanted("SmoothI-nDCG growth", options) else ():
        loss = DirectMetric(f"{EXP}@{k}", SmoothI())
        found = measure({"": loss}, scores, labels, options.seconds, options.device)[""]
        shape = f"{len(scores)} × {scores.shape[1]}"
        print(f"| SmoothI-nDCG | {shape} | K = {k} | {found} | {_mb(found.kept)} | {_mb(found.peak)} |")
    shapes = ((1251, 45), (1251, 90), (1251, 180), (2502, 180))
    for length, relevant in shapes if wanted("TwinSigmoid nDCG growth", options) else ():
        if small:
            length, relevant = length // 30, relevant // 10
        scores, labels = lists(2 if small else 16, length, relevant, options.device)
        found = measure({"": DirectMetric(EXP, TwinSigmoid(alpha=1))}, scores, labels, options.seconds, options.device)[
            ""
        ]
        block, square = 4 * len(scores) * relevant * length, 4 * len(scores) * length**2
        print(
            f"| TwinSigmoid nDCG | {len(scores)} × {length} | {relevant} relevant | {found} | {_mb(found.kept)} "
            f"| {_mb(found.peak)} (a relevant × N tensor: {_mb(block)}, an N × N tensor: {_mb(square)}) |"
        )


def grid() -> Iterator[tuple[str, Loss]]:
    """Direct metrics: every measure × every relaxation, as far as defined."""
    relaxations = {
        "Approx": Approx(alpha=10),
        "TwinSigmoid": TwinSigmoid(alpha=1),
        "SmoothI": SmoothI(),
        "SmoothI(stop_gradient=False)": SmoothI(stop_gradient=False),
        "NeuralSort": NeuralSort(),
        "NeuralSort(sinkhorn=0)": NeuralSort(sinkhorn=0),
        "SoftSort": SoftSort(tau=1),
        "FastSoftSort": FastSoftSort(strength=1),
        "OptimalTransport": OptimalTransport(),
    }
    for name, relaxation in relaxations.items():
        for measure_name in ("nDCG", "nDCG@10", "AP", "P@10", "nERR@10", "RR@10"):
            yield f"{measure_name} × {name}", DirectMetric(measure_name, relaxation)


def print_long_lists(options: argparse.Namespace) -> None:
    """Every direct metric on one list of 5,000 documents with 20 relevant: under 1 GiB, under 1 s."""
    length = 100 if options.quick else 5000
    scores, labels = lists(1, length, 20, options.device)
    print(f"\n| 1 × {length}, 20 relevant | time | kept | peak | < 1 s, < 1 GiB |\n|---|---|---|---|---|")
    for name, loss in tqdm([row for row in grid() if wanted(row[0], options)], desc="long lists", disable=None):
        found = measure({"": loss}, scores, labels, 0, options.device)[""]
        good = found.least < 1 and found.peak < 2**30
        print(f"| {name} | {found} | {_mb(found.kept)} | {_mb(found.peak)} | {'✓' if good else '✗'} |")


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
    others = {"allRank": peers.allrank(), "s-t": peers.sentence_transformers(), "plain": peers.plain()}
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


def print_lengths(options: argparse.Namespace) -> None:
    """Every loss over list lengths; ratios are the contender's over ours."""
    print("\n| loss | batch × N | ours | kept | peak | others: time ratio (kept ratio) |\n|---|---|---|---|---|---|")
    shapes = {10: 4, 40: 2} if options.quick else SHAPES
    rows = {name: everyone for name, everyone in contenders().items() if wanted(name, options)}
    for name, everyone in tqdm(rows.items(), desc="lengths", disable=None):
        for length, batch in shapes.items():
            fitting = {who: step for who, step in everyone.items() if _bytes_of(who, name, batch, length) < HEAVY}
            if "ours" not in fitting:
                continue
            scores, labels = lists(batch, length, None, options.device)
            found = measure(fitting, scores, labels, options.seconds, options.device)
            ours = found.pop("ours")
            ratios = [
                f"{who} {other.least / ours.least:.1f} ({other.kept / max(ours.kept, 1):.1f})"
                for who, other in found.items()
            ]
            row = [name, f"{batch} × {length}", str(ours), _mb(ours.kept), _mb(ours.peak), ", ".join(ratios) or "–"]
            print(f"| {' | '.join(row)} |", flush=True)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny lists and few steps: does it run?")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--seconds", type=float, default=3.0, help="about how long a contender of a row is timed")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--only", nargs="*", help="only the rows whose name has one of these in it")
    options = parser.parse_args()
    if options.quick:
        options.seconds = 0.0
    torch.set_num_threads(options.threads)
    packages = ", ".join(f"{name} {_version(name)}" for name in ("torch", "allRank", "sentence-transformers", "rerank"))
    print(f"{_hardware(options.device)}; {packages}; {datetime.now(UTC):%Y-%m-%d}.\n")
    print_targets(options)
    print_growth(options)
    print_long_lists(options)
    print_lengths(options)


if __name__ == "__main__":
    main()
