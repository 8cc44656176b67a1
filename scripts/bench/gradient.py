"""Seconds and memory of a training step on one long list: the whole graph, checkpointed, cached.

    OMP_NUM_THREADS=1 python scripts/bench/gradient.py [--lengths 12 50 150] [--tokens 192] [--token-budget 2048]
        [--dropout 0] [--rounds 3] [--modes cached checkpoint full] [--model sentence-transformers/all-MiniLM-L6-v2]

prints a Markdown table. The ways take turns, so that a busy machine slows all of them alike. Seconds are the median of
the processor's time (of the clock on a GPU); memory is the most that a step takes beyond what the process had before.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rerank.kernels.memory import keep_freed
from rerank.kernels.precision import resolve
from rerank.kernels.sparse import sparse_embeddings
from rerank.lists.tokens import Tokens
from rerank.losses import SmoothINDCG
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.training.gradient import Chunked, Mode, backpropagate

MODES: tuple[Mode, ...] = ("cached", "checkpoint", "full")
"""The one that takes the least memory first."""


def resident(key: str) -> int:
    """Bytes that Linux gives this process: now (VmRSS), or at most since the last reset (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def step(model: CrossEncoder, pairs: Chunked, labels: Tensor, mode: Mode) -> tuple[float, int]:
    """Seconds and peak memory of one gradient."""
    model.zero_grad(set_to_none=False)
    cuda = pairs.device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
    clock = time.perf_counter if cuda else time.process_time
    started = clock()
    loss = SmoothINDCG()
    with sparse_embeddings(model):
        backpropagate(mode, pairs, lambda scores: loss(scores[None], labels))
    if cuda:
        torch.cuda.synchronize()
    seconds = clock() - started
    return seconds, (torch.cuda.max_memory_allocated() if cuda else resident("VmHWM")) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--lengths", type=int, nargs="+", default=[12, 50, 150], help="documents of the list")
    parser.add_argument("--modes", choices=MODES, nargs="+", default=MODES)
    parser.add_argument("--tokens", type=int, default=192, help="of a pair")
    parser.add_argument("--token-budget", type=int, default=2048, help="padded tokens of a chunk")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--precision", choices=["auto", "bf16", "fp32"], default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        keep_freed()  # as the trainer does
    modes = [mode for mode in MODES if mode in options.modes]
    room = options.tokens - 3
    model = CrossEncoder(options.model, query_length=12, document_length=room - 12, dropout=options.dropout)
    model.to(device).train()
    precision, why = resolve(options.precision, device)
    rng = np.random.default_rng(0)
    words = model.tokenizer.vocab_size
    print(f"precision {precision} ({why}), {torch.get_num_threads()} threads, dropout {options.dropout:g}\n")
    print("| documents | gradient | seconds | of full | documents/s | peak memory | of full |")
    print("|---|---|---|---|---|---|---|")
    for length in options.lengths:
        queries = [rng.integers(1000, words, 12)]
        documents = [rng.integers(1000, words, room - 12) for _ in range(length)]
        rows, start = np.arange(length), np.zeros(1, dtype=np.int64)
        inputs = model._pairs(Tokens.of(queries, documents), np.zeros_like(rows), rows)
        pairs = Chunked(model, inputs, rows, start, options.token_budget, precision, device)
        labels = torch.from_numpy((rng.random((1, length)) < 0.1).astype(np.float32)).to(device)
        labels[0, 0] = 1
        measured: dict[Mode, list[tuple[float, int]]] = {mode: [] for mode in modes}
        if length == options.lengths[0]:  # gradients to add to, kernels to choose
            few = Chunked(model, inputs, rows[:2], start, options.token_budget, precision, device)
            step(model, few, labels[:, :2], "full")
        for _ in range(options.rounds):
            for mode in modes:
                measured[mode].append(step(model, pairs, labels, mode))
        seconds = {mode: statistics.median(s for s, _ in found) for mode, found in measured.items()}
        peak = {mode: statistics.median(m for _, m in found) for mode, found in measured.items()}
        for mode in reversed(modes):
            speed, memory = length / seconds[mode], peak[mode] / 1e6
            whole = "full" in seconds
            share = f"{seconds[mode] / seconds['full']:.2f}" if whole else ""
            part = f"{peak[mode] / peak['full']:.2f}" if whole else ""
            row = f"{length} | {mode} | {seconds[mode]:.2f} | {share} | {speed:.1f} | {memory:.0f} MB | {part}"
            print(f"| {row} |", flush=True)


if __name__ == "__main__":
    main()
