"""Chunks without padding beside padded ones on a CPU: how much longer the same scores, or gradients, take padded.

    taskset -c 0 python scripts/bench/flat.py [--rounds 5] [--pairs 24] [--hidden 256] [--layers 4]

prints a Markdown table. Models are random and small, texts are random words, of 40 to 320 tokens as they come. The two
ways take turns in one process; each number is the median of the rounds' ratios of processor time, with the lowest and
the highest. Padded decoders compute common beginnings once in scoring, as they did before.
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))  # rerank, where it is not installed

from models import SHAPES, random_model

from rerank.kernels.flat import stop_reading_flat
from rerank.kernels.precision import autocast
from rerank.lists.tokens import Tokens
from rerank.models.score import ON_A_CPU, score_candidates
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.decoder import Decoder

DECODER = "Qwen3, 8 of 0.6B's 28 layers"
MODELS = {"ModernBERT": "ModernBERT-base", "Qwen3, plain": DECODER, "Qwen3, qwen3-reranker": DECODER}


def made(name: str, options: argparse.Namespace) -> Any:
    """A random model."""
    heads = options.hidden // 64
    sizes = {"hidden_size": options.hidden, "num_hidden_layers": options.layers, "num_attention_heads": heads}
    sizes |= {"intermediate_size": 3 * options.hidden, "num_key_value_heads": max(1, heads // 2), "head_dim": 64}
    with tempfile.TemporaryDirectory() as folder:
        random_model(MODELS[name], Path(folder), **sizes)
        lengths: dict[str, Any] = {"query_length": 32, "document_length": 320, "dropout": 0.0}
        if SHAPES[MODELS[name]][0] != "qwen3":
            return CrossEncoder(folder, **lengths)
        return Decoder(folder, head="hf", template=name.split(", ")[1], **lengths)


def work(model: Any, options: argparse.Namespace, precision: Any) -> dict[str, Callable[[], object]]:
    """What is measured: scores of some pairs, and a gradient of their sum."""
    rng, count = np.random.default_rng(0), options.pairs
    documents = [rng.integers(5, 15, size) for size in rng.integers(40, 320, count)]
    tokens = Tokens.of([rng.integers(5, 15, 12) for _ in range(count)], documents)
    rows = np.arange(count)
    inputs = model.token_inputs(tokens, rows, rows)

    def scores() -> object:
        return score_candidates(model, inputs, rows, rows, precision=precision)

    def gradient() -> None:
        model.train()
        for chunk in inputs.chunks(rows, rows, ON_A_CPU):
            with autocast(precision, torch.device("cpu")):
                found = model.score(inputs.collate(rows[chunk], np.arange(len(chunk))))
            found.sum().backward()
        model.zero_grad(set_to_none=True)

    return {"scoring": scores, "training": gradient}


def seconds(do: Callable[[], object]) -> float:
    """Processor time."""
    started = time.process_time()
    do()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--precisions", nargs="+", choices=("fp32", "bf16"), default=["fp32", "bf16"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | arithmetic | work | padded / without | lowest, highest |\n|---|---|---|---:|---:|")
    for name in options.models:
        flat = made(name, options)
        padded = copy.deepcopy(flat)
        stop_reading_flat(padded.network)
        for precision in options.precisions:
            ways = [work(model, options, precision) for model in (padded, flat)]
            for what in ways[0]:
                for way in ways:
                    way[what]()
                ratios = [seconds(ways[0][what]) / seconds(ways[1][what]) for _ in range(options.rounds)]
                spread = f"{min(ratios):.2f}, {max(ratios):.2f}"
                print(f"| {name} | {precision} | {what} | {np.median(ratios):.2f} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
