"""Measure how the gradient, and the weights after 20 steps, depend on how a batch of eight lists is cut.

Each cut computes the gradient of the first batch and takes 20 steps of AdamW in float32, without dropout. Printed are
the largest differences from one process with one micro-batch, as shares of the largest number. Biases of attention keys
are left out of the weights: their gradient is rounding alone, of which Adam makes whole steps.

    python -m scripts.bench.cuts --texts train.tsv --model FOLDER --features Fold1/train.txt
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState
from accelerate.utils.other import get_free_port
from torch.multiprocessing.spawn import start_processes

import rerank
from rerank.features.letor import letor_lists
from rerank.lists.sampling import Full
from rerank.lists.view import Lists
from rerank.models.scorer import Scorer
from rerank.training.accumulate import GradientAccumulator, MemoryLimits, ScoringModule
from rerank.training.batches import Batches, Targets
from rerank.training.launch import make_accelerator
from scripts.bench.common import head, parser_of, row

LISTS, STEPS = 8, 20
CUTS = [(8, 1), (4, 1), (1, 1), (4, 2), (2, 2)]
"""Lists in a micro-batch, and processes; the first is what the others are compared with."""

LOSS = rerank.LambdaLoss()
Vectors = tuple[torch.Tensor, torch.Tensor]
"""The gradient of the first batch, and the weights after all steps."""

UNSEEN = ("key.bias", "classifier.bias", "layers.2.bias")
"""Biases of keys and of the last layer: the loss does not depend on them, so their gradient is rounding alone."""


def flat(values: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([value.detach().flatten().clone() for name, value in values.items() if not name.endswith(UNSEEN)])


def trained(model: Scorer, lists: Lists, rate: float, micro: int, gradient: Any) -> Vectors:
    usable = Targets(lists, LOSS).usable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    accelerator = make_accelerator("fp32")
    forward, optimizer = accelerator.prepare(ScoringModule(model), optimizer)
    budget = 512 if gradient == "cached" else model.budget
    step = GradientAccumulator(
        accelerator, forward, model.inputs(lists), Targets(lists, LOSS), MemoryLimits(budget), micro, gradient
    )
    model.train()
    first: torch.Tensor | None = None
    for number, batch in enumerate(Batches(lists, usable, Full(5), LISTS, STEPS, 42).epoch(0)):
        step.accumulate(batch, number + 1)
        if first is None:
            first = flat({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
        accelerator.clip_grad_norm_(forward.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    assert first is not None
    return first, flat(dict(model.named_parameters()))


def in_processes(count: int, work: Callable[[], Vectors]) -> Vectors:
    if count == 1:
        return work()
    port = str(get_free_port())
    with tempfile.TemporaryDirectory() as folder:
        start_processes(_work, (count, port, work, folder), nprocs=count, start_method="fork")
        found: Vectors = torch.load(Path(folder) / "found")
        return found


def _work(process: int, count: int, port: str, work: Callable[[], Vectors], folder: str) -> None:
    ranks = {"RANK": process, "LOCAL_RANK": process, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ.update({name: str(value) for name, value in ranks.items()} | {"MASTER_PORT": port})
    os.environ["MASTER_ADDR"] = "localhost"
    AcceleratorState._reset_state(reset_partial_state=True)
    found = work()
    if process == 0:
        torch.save(found, Path(folder) / "found")
    dist.barrier()
    dist.destroy_process_group()


def table(name: str, make: Callable[[], Scorer], lists: Lists, rate: float) -> None:
    whole: Vectors | None = None
    for micro, processes in CUTS:
        for gradient in ("full", "cached"):
            found = in_processes(processes, lambda m=micro, g=gradient: trained(make(), lists, rate, m, g))
            whole = whole or found
            off = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, whole, strict=True)]
            cut = f"{processes} × {LISTS // processes // micro} × {micro}"
            row(name, f"{cut}, {gradient}", *(f"{value:.1e}" for value in off))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--texts", help="a TSV file with query_id, doc_id, query, text and grade")
    parser.add_argument("--model", help="an encoder for them")
    parser.add_argument("--features", help="a LETOR file")
    options = parser.parse_args()
    head("model", "processes × micro-batches × lists, gradient", "gradient", f"weights after {STEPS} steps")
    if options.features:
        lists = letor_lists(Path(options.features))

        def network() -> Scorer:
            model = rerank.MLP(hidden=[64])
            model.prepare(lists, 42)
            return model

        table("MLP", network, lists, 1e-3)
    if options.texts:
        from pandas import read_csv

        texts = Lists.from_dataframe(read_csv(options.texts, sep="\t", quoting=3))

        def encoder() -> Scorer:
            model = rerank.CrossEncoder(options.model, query_length=12, document_length=16, dropout=0.0)
            model.prepare(texts, 42)
            return model

        table("MiniLM", encoder, texts, 2e-5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
