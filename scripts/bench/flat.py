"""Chunks without padding and padded Transformers on a CPU: how much longer the same scores, or gradients, take padded.

    OMP_NUM_THREADS=1 taskset -c 0 python scripts/bench/flat.py [--rounds 5] [--pairs 12] [--hidden 256] [--layers 2]
        [--models bert "qwen3, plain"] [--precisions fp32 bf16]

prints a Markdown table of all architectures that are read without padding. Models are random and small, texts are
random words, of 40 to 320 tokens as they come. The two ways take turns in one process: chunks of the same pairs, padded
by Transformers' own code with PyTorch's attention, and as rerank reads them. Each number is the median of the rounds'
ratios of processor time, with the lowest and the highest. *Of the products*: all that the architecture needs, over what
a large product reaches in the same run. Padded decoders compute common beginnings once in scoring, as they did before.
The exit status is 1 where a median is below 1.
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

from models import DECODERS, operations, product_rate, random_model

from rerank.kernels.flat import KINDS, OWN_CODE, reads_flat, stop_reading_flat
from rerank.kernels.flat_modern import MODERN
from rerank.kernels.precision import TYPES, autocast
from rerank.lists.tokens import Tokens
from rerank.models.score import ON_A_CPU, score_candidates
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.decoder import Decoder

MODELS = [*KINDS, *OWN_CODE, *MODERN, *(f"{kind}, plain" for kind in DECODERS), "qwen3, qwen3-reranker"]
"""Architectures, and templates of decoders."""


def made(name: str, options: argparse.Namespace) -> Any:
    """A random model."""
    heads, (kind, _, template) = options.hidden // 64, name.partition(", ")
    sizes = {"hidden_size": options.hidden, "num_hidden_layers": options.layers, "num_attention_heads": heads}
    sizes |= {"intermediate_size": 3 * options.hidden, "hidden_dim": 3 * options.hidden}
    sizes |= {"num_key_value_heads": max(1, heads // 2), "head_dim": 64} if kind in DECODERS else {}
    with tempfile.TemporaryDirectory() as folder:
        random_model(kind, Path(folder), **sizes)
        lengths: dict[str, Any] = {"query_length": 32, "document_length": 320, "dropout": 0.0}
        model = (
            Decoder(folder, head="hf", template=template, **lengths) if template else CrossEncoder(folder, **lengths)
        )
        assert reads_flat(model.network)
        return model


def as_transformers_has_it(model: Any) -> Any:
    """A copy that reads padded chunks."""
    padded = copy.deepcopy(model)
    stop_reading_flat(padded.network)
    padded.network.set_attn_implementation("sdpa")
    return padded


def work(model: Any, options: argparse.Namespace, precision: Any) -> tuple[dict[str, Callable[[], object]], float]:
    """What is measured, scores of some pairs and a gradient of their sum, and the operations of the scores."""
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

    return {"scoring": scores, "training": gradient}, operations(model.network, inputs.lengths(rows))


def seconds(do: Callable[[], object]) -> float:
    """Processor time."""
    started = time.process_time()
    do()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--precisions", nargs="+", choices=("fp32", "bf16"), default=["fp32", "bf16"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rates = {kind: product_rate(torch.device("cpu"), 1024, TYPES[kind]) for kind in options.precisions}
    print("| model | arithmetic | work | padded, s | without, s | ratio | lowest, highest | of the products |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    slower = []
    for name in options.models:
        flat = made(name, options)
        padded = as_transformers_has_it(flat)
        for precision in options.precisions:
            (theirs, _), (ours, needed) = (work(model, options, precision) for model in (padded, flat))
            for what, times in (("scoring", 1), ("training", 3)):
                theirs[what](), ours[what]()
                turns = np.array([[seconds(way[what]) for way in (theirs, ours)] for _ in range(options.rounds)])
                ratios, (before, now) = turns[:, 0] / turns[:, 1], np.median(turns, axis=0)
                spread = f"{np.median(ratios):.2f} | {ratios.min():.2f}, {ratios.max():.2f}"
                share = times * needed / now / rates[precision]
                print(
                    f"| {name} | {precision} | {what} | {before:.3f} | {now:.3f} | {spread} | {share:.0%} |", flush=True
                )
                slower += [f"{name} {precision} {what}"] * bool(np.median(ratios) < 1)
    print(f"\nSlower than padded: {', '.join(slower) or 'none'}")
    sys.exit(bool(slower))


if __name__ == "__main__":
    main()
