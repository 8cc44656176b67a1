"""Time and memory of every loss, forward and backward, over list lengths, next to allRank and sentence-transformers.

    python scripts/bench/losses.py [--quick] [--threads 1] [--seconds 3] [--device cuda] [--only NAME ...]

prints the Markdown table of docs/internals/loss-speed.md. Contenders of a row take short turns, many times over, so
that a busy machine slows all of them alike. Times are the least of all repetitions (and their median), by the clock on
the wall; with ``--threads 1`` by that of the processor, which other programs disturb less. Memory is what the graph
keeps for the backward pass ("graph") and the most that is allocated at any time ("peak").
"""

from __future__ import annotations

import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakSet

import torch
from common import head, parser_of, row
from torch import Tensor

from rerank.losses import DirectMetric, LambdaLoss, load_all
from rerank.relaxations import Approx, FastSoftSort, NeuralSort, OptimalTransport, SmoothI, SoftSort, TwinSigmoid

EXP = "nDCG(dcg='exp-log2')"
SHAPES = {10: 64, 40: 64, 150: 64, 240: 64, 1000: 16, 5000: 1}  # length -> lists in a batch

Step = Callable[[Tensor, Tensor], Tensor]
"""Scores and labels ``[B, N]`` -> a scalar loss."""


@contextmanager
def _unneeded_modules() -> Iterator[None]:
    """Empty modules in place of torchvision, gcsfs and pkg_resources, which allRank imports for other purposes."""
    unneeded = {"torchvision": ["transforms"], "torchvision.transforms": ["Compose"], "gcsfs": ["GCSFileSystem"]}
    unneeded["pkg_resources"] = ["Requirement", "resource_filename"]
    before = {name: sys.modules.get(name) for name in unneeded}
    for name, members in unneeded.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(dict.fromkeys(members))
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def allrank() -> dict[str, Step]:
    """The losses of allRank under our names; empty where it is not installed (``pip install --no-deps allRank``)."""
    try:
        with _unneeded_modules():
            from allrank.models import losses
    except ModuleNotFoundError:
        return {}
    return {
        "NeuralNDCG": losses.neuralNDCG,
        "ApproxNDCG": partial(losses.approxNDCGLoss, alpha=10.0),
        "LambdaLoss": partial(losses.lambdaLoss, weighing_scheme="ndcgLoss2PP_scheme"),
        "LambdaLoss@10": partial(losses.lambdaLoss, weighing_scheme="ndcgLoss2PP_scheme", k=10),
        "RankNet": losses.rankNet,
        "ListNet": losses.listNet,
        "ListMLE": losses.listMLE,
        "RMSE": lambda scores, labels: losses.pointwise_rmse(scores.sigmoid(), labels, 5),
        "BCE": lambda scores, labels: losses.bce(scores.sigmoid(), (labels > 0).float()),
    }


class _GivenScores(torch.nn.Module):
    """In place of a CrossEncoder: its losses ask for texts, and get the scores that are to be timed."""

    num_labels = 1

    def __init__(self) -> None:
        super().__init__()
        self.scores = torch.zeros(0)

    @property
    def device(self) -> torch.device:
        return self.scores.device

    def preprocess(self, pairs: list[Any], **_: Any) -> dict[str, Tensor]:
        return {}

    def forward(self, tokens: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"scores": self.scores.reshape(-1)}


def sentence_transformers() -> dict[str, Step]:
    """The listwise losses of sentence-transformers' cross-encoders; empty where it is not installed."""
    try:
        from sentence_transformers.cross_encoder import losses
    except ModuleNotFoundError:
        return {}
    model = _GivenScores()
    whole = {"mini_batch_size": -1}
    kinds = {
        "LambdaLoss": losses.LambdaLoss(model, weighting_scheme=losses.NDCGLoss2PPScheme(), **whole),
        "RankNet": losses.RankNetLoss(model, **whole),
        "ListNet": losses.ListNetLoss(model, **whole),
        "ListMLE": losses.ListMLELoss(model, **whole),
    }

    def step(loss: torch.nn.Module, scores: Tensor, labels: Tensor) -> Tensor:
        model.scores = scores
        queries, documents = [""] * len(scores), [[""] * scores.shape[1]] * len(scores)
        return loss([queries, documents], list(labels))

    return {name: partial(step, loss) for name, loss in kinds.items()}


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


def batch_of(batch: int, length: int, device: str) -> tuple[Tensor, Tensor]:
    """Normal scores; grades of MSLR-WEB30K's proportions."""
    generator = torch.Generator().manual_seed(length)
    shares = torch.tensor([0.52, 0.32, 0.13, 0.02, 0.01]).cumsum(0)
    grades = torch.bucketize((torch.arange(length) + 0.5) / length, shares).clamp(max=4).float()
    labels = torch.stack([grades[torch.randperm(length, generator=generator)] for _ in range(batch)])
    return torch.randn(batch, length, generator=generator).to(device), labels.to(device)


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


class _Kept:
    """A tensor that a graph keeps, for as long as it does."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def kept_bytes(step: Step, scores: Tensor, labels: Tensor) -> int:
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


def peak_bytes(step: Step, scores: Tensor, labels: Tensor, device: str) -> int:
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
    contenders: dict[str, Step], scores: Tensor, labels: Tensor, seconds: float, device: str
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


def contenders() -> dict[str, dict[str, Step]]:
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
    others = {"allRank": allrank(), "s-t": sentence_transformers()}
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


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _hardware(device: str) -> str:
    if device != "cpu":
        return torch.cuda.get_device_name()
    names = re.findall(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return f"{[*names, platform.machine()][0]}, {torch.get_num_threads()} threads"


def main() -> None:
    """Every loss over list lengths; ratios are the contender's over ours."""
    parser = parser_of(__doc__)
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--only", nargs="*", default=[""], help="rows whose name has one of these in it")
    parser.add_argument("--quick", action="store_true", help="tiny lists and few steps: does it run?")
    parser.add_argument("--seconds", type=float, default=3.0, help="about how long a contender of a row is timed")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    seconds, shapes = (0.0, {10: 4, 40: 2}) if options.quick else (options.seconds, SHAPES)
    names = ("torch", "allRank", "sentence-transformers", "rerank-direct")
    packages = ", ".join(f"{name} {_version(name)}" for name in names)
    print(f"{_hardware(options.device)}; {packages}; {datetime.now(UTC):%Y-%m-%d}.\n")
    head("loss", "batch × N", "ours", "graph", "peak", "others: time ratio (graph ratio)")
    for name, everyone in contenders().items():
        for length, batch in shapes.items() if any(part in name for part in options.only) else ():
            fitting = {who: step for who, step in everyone.items() if _bytes_of(who, name, batch, length) < HEAVY}
            if "ours" not in fitting:
                continue
            others = measure(fitting, *batch_of(batch, length, options.device), seconds, options.device)
            ours = others.pop("ours")
            ratios = [
                f"{who} {other.least / ours.least:.1f} ({other.kept / max(ours.kept, 1):.1f})"
                for who, other in others.items()
            ]
            row(name, f"{batch} × {length}", ours, _mb(ours.kept), _mb(ours.peak), ", ".join(ratios) or "–")


if __name__ == "__main__":
    main()
