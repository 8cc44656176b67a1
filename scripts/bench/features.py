"""Seconds of a training epoch on WEB30K-shaped lists, per loss, next to the bare matrix products and to allRank.

    python scripts/bench/features.py [--queries 18919] [--threads 2] [--precision fp32] [--losses ListNet]

prints Markdown. The lists are made: 136 features, lengths log-normal around 120, up to 1,251, all of them whole. The
network is an MLP of 136-1024-1, a step takes 128 lists, as rerank's trainer does it (batches, scores, loss, gradient,
Adam). *Products* are the network's matrix products alone, forward and weight gradients, on the same rows, timed before
and after each loss (the mean is taken). allRank (``pip install --no-deps allRank==1.4.3``) gets the same network and
lists through its own dataset, loader, losses and step, cut to 240 documents as it needs; it is timed for some steps,
which are multiplied to an epoch.
"""

from __future__ import annotations

import argparse
import platform
import resource
import time

import numpy as np
import peers
import pyarrow as pa
import torch

from rerank.lists import Lists
from rerank.lists.columns import Column
from rerank.lists.sampling import Full
from rerank.lists.store import Store
from rerank.losses import ApproxNDCG, ListNet, Loss, NeuralNDCG, SmoothINDCG, TwinSigmoidNDCG
from rerank.models.vectors.mlp import MLP
from rerank.training.batches import Batches
from rerank.training.step import Gradients, Limits

FEATURES, HIDDEN, BATCH, CUT = 136, 1024, 128, 240
LOSSES: dict[str, Loss] = {
    "ListNet": ListNet(),
    "ApproxNDCG": ApproxNDCG(alpha=10),
    "TwinSigmoid-nDCG": TwinSigmoidNDCG(alpha=1),
    "SmoothI-nDCG@10": SmoothINDCG("nDCG(dcg='exp-log2')@10"),
    "SmoothI-nDCG": SmoothINDCG(),
    "NeuralNDCG": NeuralNDCG(),
}
TARGETS = {"SmoothI-nDCG": 4, "NeuralNDCG": 10}
"""Times the products; 2 for the others."""


def made(queries: int, seed: int = 0) -> Lists:
    """Lists of WEB30K's shape: lengths from 1 to 1,251, grades 0 to 4 in its proportions."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(4.6, 0.62, queries), 1, 1251).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = int(offsets[-1])
    values = rng.standard_normal(rows * FEATURES, dtype=np.float32)
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
        columns={"features": Column(values.reshape(rows, FEATURES), tuple(map(str, range(1, FEATURES + 1))))},
    )
    return Lists.of(store)


class Timer:
    """Seconds of a block, the device's work included."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds = device, 0.0

    def __enter__(self) -> Timer:
        self._wait()
        self.start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._wait()
        self.seconds = time.perf_counter() - self.start

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def products(features: torch.Tensor, rows: int, precision: str) -> float:
    """Seconds of the network's matrix products over all documents, ``rows`` at a time."""
    device = features.device
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    first, last = (torch.randn(shape, device=device).to(dtype) for shape in ((FEATURES, HIDDEN), (HIDDEN, 1)))
    features = features if dtype == torch.float32 else features.to(dtype)
    with Timer(device) as timer:
        for start in range(0, len(features), rows):
            x = features[start : start + rows]
            hidden = x @ first
            hidden @ last
            x.t() @ hidden
    return timer.seconds


def epoch(lists: Lists, model: MLP, loss: Loss, precision: str) -> float:
    """Seconds of an epoch of training, without validation."""
    inputs = model.inputs(lists)
    gradients = Gradients(model, inputs, lists, loss, precision, Limits(model.budget))  # type: ignore[arg-type]
    batches = Batches(lists, np.arange(len(lists)), Full(), BATCH, None, 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with Timer(next(model.parameters()).device) as timer:
        for number, groups in enumerate(batches.epoch(0)):
            gradients.accumulate(groups, number)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return timer.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--queries", type=int, default=18_919, help="lists; WEB30K's fold has 18,919")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--losses", nargs="+", choices=list(LOSSES), default=list(LOSSES))
    parser.add_argument("--allrank-steps", type=int, default=5, help="steps of allRank to time; 0 leaves it out")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    lists = made(options.queries)
    documents = lists.size
    print(
        f"{len(lists):,} lists, {documents:,} documents, longest {lists.lengths.max():,}; {options.precision}, ", end=""
    )
    print(f"{options.threads} threads, {device}, torch {torch.__version__}, {platform.machine()}\n")
    print("| loss | products | rerank | ratio | to reach | allRank | allRank / rerank |\n|---|---|---|---|---|---|---|")
    rows = int(lists.lengths.mean() * BATCH)
    theirs = peers.allrank_steps(lists, HIDDEN, BATCH, CUT, options.allrank_steps) if options.allrank_steps else {}
    for name in options.losses:
        torch.manual_seed(0)
        model = MLP(hidden=[HIDDEN])
        model.prepare(lists, 42)
        model.to(device)
        values = model.inputs(lists).values
        epoch(lists.select(np.arange(min(BATCH, len(lists)))), model, LOSSES[name], options.precision)  # warm
        before = products(values, rows, options.precision)
        ours = epoch(lists, model, LOSSES[name], options.precision)
        floor = (before + products(values, rows, options.precision)) / 2
        line = f"| {name} | {floor:.2f} s | {ours:.2f} s | {ours / floor:.2f} | {TARGETS.get(name, 2)} |"
        if step := theirs.get(name):
            seconds = step() * -(-len(lists) // BATCH)
            print(f"{line} {seconds:.0f} s | {seconds / ours:.1f} |", flush=True)
        else:
            print(f"{line} | |", flush=True)
    if not theirs:  # allRank's NeuralNDCG alone keeps gigabytes
        print(f"\npeak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")


if __name__ == "__main__":
    main()
