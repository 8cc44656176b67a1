"""Where the time of a training step on a CPU goes, and how many shapes and generated kernels an epoch has.

    python scripts/bench/shapes.py [--lists lists/scifact-train] [--model sentence-transformers/all-MiniLM-L6-v2]
        [--trained 8] [--depth 50] [--length 256] [--dropout 0.1] [--threads 2] [--kernels auto]
    python scripts/bench/shapes.py --compile [--depth 8] …

prints Markdown. Without ``--lists``, texts have random lengths as SciFact's pairs do (about 270 tokens). *Time* is
what PyTorch's profiler sees of each operation by itself, over all lists but the first, per step; *Python and
launches* is the clock's time less that. *Shapes* are the distinct ones of what oneDNN computes, *generated* the
primitives that it had to make for them (``ONEDNN_VERBOSE=profile_create``, in a process of its own, from the first
step on); making them is part of the time of products and attention in the first table. Last, without computing
anything, the shapes of 400 steps of 50 such pairs, each length as it is and on the ladder.

``--compile`` does something else: the same steps as they are and with what lies between the products of BERT's layers
(GELU, dropout, sums, norms) compiled by inductor, in turns, in seconds of the processor, those of the first steps too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rerank.kernels.cpu_attention import ELEMENTS
from rerank.kernels.flat_attention import Sequences
from rerank.kernels.memory import keep_freed
from rerank.kernels.packing import pack
from rerank.kernels.precision import resolve
from rerank.kernels.ways import use_ways, ways_of
from rerank.lists.tokens import Tokens
from rerank.lists.view import Lists
from rerank.losses import SmoothINDCG
from rerank.models.base import Inputs
from rerank.models.scorer import ON_A_CPU
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.training.batches import Group
from rerank.training.step import Gradients, Limits

QUERY = 64

KINDS = {
    "optimizer": r"_fused_adam|adamw|Optimizer|_foreach|clip_grad",
    "attention": r"scaled_dot|flash|bmm|baddbmm|softmax|exp_|aminmax",
    "products": r"addmm|\bmm\b|linear|mkldnn",
    "dropout": r"dropout|bernoulli|random_|bitwise",
    "GELU and norms": r"gelu|layer_norm|tanh",
    "copies, casts, sums": r"copy|clone|cat|add|mul|div|sub|fill|zero|index|embedding|sum|gather|scatter",
}
"""Operations by their names; the first that fits."""


def texts(options: argparse.Namespace, count: int) -> Tokens:
    """Random tokens: queries of 5 to 30, documents as long as SciFact's after they are cut."""
    rng = np.random.default_rng(0)
    queries = [rng.integers(1000, 20_000, rng.integers(5, 31)) for _ in range(options.trained)]
    sizes = np.clip(rng.normal(300, 90, count), 40, options.length).astype(int)
    return Tokens.of(queries, [rng.integers(1000, 20_000, size) for size in sizes])


def made(options: argparse.Namespace, model: CrossEncoder) -> tuple[Lists, Inputs]:
    """Lists to train on, as the model reads them."""
    if options.lists:
        lists = Lists.open(options.lists)
        useful = np.add.reduceat(lists.grades > 0, lists.offsets[:-1]) > 0
        lists = lists.select(np.flatnonzero(useful)).top(options.depth)
        lists = lists.select(np.arange(options.trained))
        return lists, model.inputs(lists)
    import pandas as pd

    rows = [(f"q{q}", f"d{q}-{d}", int(d < 2)) for q in range(options.trained) for d in range(options.depth)]
    frame = pd.DataFrame(rows, columns=["query_id", "doc_id", "grade"]).assign(query="q", text="t")
    lists = Lists.from_dataframe(frame)
    tokens = texts(options, len(rows))
    return lists, model._pairs(tokens, lists.store.query, lists.store.document)


def stepper(options: argparse.Namespace, compiled: bool = False) -> Callable[[int], None]:
    """A training of its own: does its n-th step."""
    torch.manual_seed(0)
    model = CrossEncoder(options.model, query_length=QUERY, document_length=options.length, dropout=options.dropout)
    model.train()
    device = torch.device("cpu")
    precision, _ = resolve(options.precision, device)
    lists, inputs = made(options, model)
    if hasattr(model, "settle"):  # versions before had no choice
        model.settle(precision, options.kernels)
    if compiled:
        compile_layers(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    gradients = Gradients(model, inputs, lists, SmoothINDCG(), precision, Limits(model.budget, 32_768), gradient="auto")

    def step(i: int) -> None:
        gradients.accumulate([Group(i, np.arange(lists.offsets[i], lists.offsets[i + 1]), 0)], i)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def train(options: argparse.Namespace, profiled: bool) -> tuple[float, Any]:
    """Seconds of a step, and what the profiler saw."""
    torch.set_num_threads(options.threads)
    keep_freed()
    step = stepper(options)
    step(0)
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) if profiled else None
    started = time.perf_counter()
    if profiler:
        profiler.start()
    for i in range(1, options.trained):
        step(i)
    seconds = time.perf_counter() - started
    if profiler:
        profiler.stop()
    return seconds / (options.trained - 1), profiler


def compile_layers(model: CrossEncoder) -> None:
    """Let inductor write what lies between the products of BERT's layers, dropout included, but not attention."""
    ways = ways_of(model.network)
    assert ways is not None
    use_ways(model.network, replace(ways, dropout="torch"))
    for layer in getattr(model.network, model.network.base_model_prefix).encoder.layer:
        layer.feed_forward_chunk = torch.compile(layer.feed_forward_chunk, dynamic=True)
        layer.attention.output.forward = torch.compile(layer.attention.output.forward, dynamic=True)


def compile_table(options: argparse.Namespace) -> str:
    """Seconds of the processor of each step, plain and compiled in turns; the compiler's are among them."""
    torch.set_num_threads(options.threads)
    keep_freed()
    steps = {"as they are": stepper(options), "compiled": stepper(options, compiled=True)}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for i in range(options.trained):
        for name, step in steps.items():
            started = os.times()
            step(i)
            seconds[name].append(sum(os.times()[:4]) - sum(started[:4]))
    lines = ["| steps | first, s | second, s | median of the others, s |", "|---|---|---|---|"]
    for name, found in seconds.items():
        lines.append(f"| {name} | {found[0]:.2f} | {found[1]:.2f} | {np.median(found[2:]):.3f} |")
    return "\n".join(lines)


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), "other operations")


def time_table(options: argparse.Namespace) -> str:
    """Milliseconds of a step by kind of work."""
    seconds, profiler = train(options, profiled=True)
    steps, found = options.trained - 1, Counter[str]()
    for event in profiler.key_averages():
        found[kind_of(event.key)] += event.self_cpu_time_total / 1e3 / steps
    found["Python and launches"] = max(0.0, 1e3 * seconds - sum(found.values()))
    lines = ["| a step's | ms | share |", "|---|---|---|"]
    lines += [f"| {kind} | {ms:.1f} | {ms / 10 / seconds:.0f} % |" for kind, ms in found.most_common()]
    return "\n".join([*lines, f"| all | {1e3 * seconds:.1f} | |"])


def generated(text: str) -> tuple[int, int, float]:
    """Distinct primitives, how many were made anew, and the milliseconds that took, of oneDNN's verbose lines."""
    made, seen, spent = 0, set[str](), 0.0
    for line in text.splitlines():
        parts = line.split(",")
        where = next((i for i, part in enumerate(parts) if part.startswith("create")), None)
        if not line.startswith("onednn_verbose") or where is None or where + 1 >= len(parts):
            continue
        seen.add(",".join(parts[where + 1 : -1]))
        if "cache_miss" in parts[where]:
            made, spent = made + 1, spent + float(parts[-1])
    return len(seen), made, spent


def shapes_line(options: argparse.Namespace) -> str:
    """Counts of an epoch, from a process of its own."""
    told = [word for word in sys.argv[1:] if word != "--inner"]
    environment = os.environ | {"ONEDNN_VERBOSE": "profile_create"}
    done = subprocess.run(
        [sys.executable, __file__, *told, "--inner"], env=environment, capture_output=True, text=True, check=True
    )
    shapes, made, spent = generated(done.stdout)
    seconds = json.loads(done.stdout.splitlines()[-1])["seconds"]
    return (
        f"{shapes} shapes, {made} primitives generated in {spent / 1e3:.2f} s, in {options.trained} steps "
        f"({seconds:.2f} s a step but for the first)"
    )


def epoch_of_shapes(few_shapes: bool, steps: int = 400, pairs: int = 50, heads: int = 12) -> tuple[int, int, float]:
    """Distinct lengths of chunks, distinct runs of attention, and what is computed beside the texts' tokens."""
    rng, chunks, runs, places, tokens = np.random.default_rng(0), set(), set(), 0, 0
    for _ in range(steps):
        lengths = np.clip(rng.normal(270, 80, pairs), 40, 320).astype(int)
        for chunk in pack(lengths, ON_A_CPU):
            sequences = Sequences.of(lengths[chunk].tolist(), few_shapes)
            chunks.add(sequences.total)
            runs |= {run[2:] for run in sequences.runs(ELEMENTS // heads)}
            places, tokens = places + sequences.total, tokens + int(lengths[chunk].sum())
    return len(chunks), len(runs), places / tokens - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", help="lists folder with judgments")
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--trained", type=int, default=8, help="lists, one a step, the first not timed")
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--length", type=int, default=256, help="word pieces of a document at the most")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kernels", default="auto", choices=["auto", "own", "torch"])
    parser.add_argument("--compile", action="store_true", help="time steps that inductor has compiled in part")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        seconds, _ = train(options, profiled=False)
        print(json.dumps({"seconds": seconds}))
        return
    print(f"{options.threads} threads, torch {torch.__version__}, dropout {options.dropout}\n")
    if options.compile:
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # in this process, whose seconds are counted
        print(compile_table(options))
        return
    print(time_table(options))
    print(f"\n{shapes_line(options)}\n")
    for name, few_shapes in (("as they are", False), ("on the ladder", True)):
        chunks, runs, more = epoch_of_shapes(few_shapes)
        print(f"lengths {name}: {chunks} of chunks, {runs} shapes of attention, {more:.1%} more tokens")


if __name__ == "__main__":
    main()
