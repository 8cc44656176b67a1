"""Scoring and training on real lists, side by side with sentence-transformers.

    python scripts/bench_text.py --lists lists/scifact-train [--model sentence-transformers/all-MiniLM-L6-v2]
        [--scored 600] [--trained 4] [--depth 50] [--length 256] [--threads 2] [--rounds 3] [--compile]

prints Markdown. *Scoring*: the same texts (documents cut to ``--length`` word pieces beforehand, so that both read the
same tokens), tokenisation included; theirs at its defaults, and in bf16; ours also with padding and all of the last
layer, and that compiled. *Training*: the same whole lists, one list a step, AdamW; theirs by ``CrossEncoderTrainer``
with ``LambdaLoss`` in micro-batches of 16, which tokenises in each step; ours with SmoothI-nDCG on token ids that were
cached before, as it always trains; each in a process of its own. The first step is left out (of theirs it is another
list, of as many documents). Contenders take turns; a row has the best of its rounds by the clock. *Of the best* is what
all of the encoder's products and attention need (two operations a weight and token, four a dimension and pair of
tokens, thrice that in training; padding is not counted as work) over what a product of 4096 x 4096 matrices in bf16
reaches before and after.
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from bench_scoring import Texts, ours, texts_of

from rerank.kernels.flat import reads_flat
from rerank.kernels.memory import keep_freed
from rerank.kernels.packing import pack
from rerank.kernels.precision import resolve
from rerank.lists.view import Lists
from rerank.losses import SmoothINDCG
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.weights import find_model
from rerank.training.batches import Group
from rerank.training.step import Gradients

QUERY = 64
"""Word pieces of a query at the most."""


def product_rate(device: torch.device) -> float:
    """Operations a second of a large matrix product in bf16."""
    one, other = (torch.randn(4096, 4096, device=device).bfloat16() for _ in range(2))
    best = np.inf
    for _ in range(4):
        started = time.perf_counter()
        one @ other
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return 2 * 4096**3 / best


def operations(model: CrossEncoder, lengths: np.ndarray) -> float:
    """What scoring pairs of so many tokens needs."""
    layers = [p.numel() for n, p in model.network.named_parameters() if ".layer" in n and p.ndim == 2]
    config = model.network.config
    return float((2 * sum(layers) * lengths + 4 * config.num_hidden_layers * config.hidden_size * lengths**2).sum())


def padding(parts: list[np.ndarray], budget: int) -> float:
    """Padded over real tokens, less one, where each part is cut into chunks by itself."""
    padded = sum(part[chunk].max() * len(chunk) for part in parts for chunk in pack(part, budget))
    return float(padded / sum(part.sum() for part in parts) - 1)


def cut(lists: Lists, model: CrossEncoder) -> Texts:
    """The texts of all pairs, documents without what the model would cut."""
    texts = lists.store.documents.column("text").to_pylist()
    encoded = model.tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ends, limit = encoded["offset_mapping"], model.document_length
    short = [text if len(end) <= limit else text[: end[limit - 1][1]] for text, end in zip(texts, ends, strict=True)]
    return texts_of(lists, short)


def their_scoring(name: str, length: int, device: torch.device, dtype: str) -> Callable[[Texts], object]:
    from sentence_transformers import CrossEncoder as Theirs

    model = Theirs(name, max_length=length, num_labels=1, device=str(device), model_kwargs={"dtype": dtype})
    return lambda pairs: model.predict(pairs, show_progress_bar=False)


def ours_training(options: argparse.Namespace, lists: Lists, dropout: float) -> float:
    """Seconds of all lists but the first; ours."""
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    if device.type == "cpu":
        keep_freed()  # as the trainer does
    model = CrossEncoder(options.model, query_length=QUERY, document_length=options.length, dropout=dropout)
    model.to(device).train()
    precision, _ = resolve("auto", device)
    inputs = model.inputs(lists)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    gradients = Gradients(
        model, inputs, lists, SmoothINDCG(), precision, model.budget, None, gradient="auto", full_tokens=32_768
    )
    times = []
    for i in range(len(lists)):
        started = time.perf_counter()
        rows = np.arange(lists.offsets[i], lists.offsets[i + 1])
        gradients.accumulate([Group(i, rows, 0)], i)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return sum(times[1:])


def their_training(options: argparse.Namespace, lists: Lists, dropout: float, bf16: bool) -> float:
    """Seconds of all lists but the first; sentence-transformers'."""
    from datasets import Dataset
    from sentence_transformers import CrossEncoder as Theirs
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import LambdaLoss
    from transformers import TrainerCallback
    from transformers.utils import logging as hf_logging

    torch.set_num_threads(options.threads)
    hf_logging.set_verbosity_error()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ends.append(time.perf_counter())

    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = Theirs(
        options.model,
        max_length=options.length + QUERY + 3,
        num_labels=1,
        device=options.device,
        config_kwargs=rates,
    )
    texts = cut(lists, CrossEncoder(options.model, query_length=QUERY, document_length=options.length))
    ends = list(zip(lists.offsets[:-1], lists.offsets[1:], strict=True))
    data = Dataset.from_dict(
        {
            "query": [texts[a][0] for a, _ in ends],
            "docs": [[text for _, text in texts[a:b]] for a, b in ends],
            "labels": [[int(label) for label in lists.grades[a:b]] for a, b in ends],
        }
    )
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = CrossEncoderTrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=1,
            num_train_epochs=1,
            learning_rate=2e-5,
            bf16=bf16,
            use_cpu=options.device == "cpu",
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            dataloader_num_workers=0,
            seed=0,
        )
        loss = LambdaLoss(model, mini_batch_size=16)
        CrossEncoderTrainer(model=model, args=arguments, train_dataset=data, loss=loss, callbacks=[clock]).train()
    return clock.ends[-1] - clock.ends[0]


def usable_lists(options: argparse.Namespace) -> Lists:
    """The lists to train on."""
    lists = Lists.open(options.lists)
    some = lists.select(np.flatnonzero(np.add.reduceat(lists.grades > 0, lists.offsets[:-1]) > 0)).top(options.depth)
    return some.select(np.arange(options.trained))


def by_itself(train: Callable[..., float], options: argparse.Namespace, *rest: Any) -> float:
    """Seconds that training takes in a process of its own: how it keeps memory is nobody else's."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_train, train, options, *rest).result()


def _train(train: Callable[..., float], options: argparse.Namespace, *rest: Any) -> float:
    return train(options, usable_lists(options), *rest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", required=True, help="lists folder with judgments")
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--scored", type=int, default=600, help="pairs to score, drawn from all lists; 0 leaves it out")
    parser.add_argument("--trained", type=int, default=4, help="lists, the first not timed; 0 leaves it out")
    parser.add_argument("--depth", type=int, default=50, help="documents of a list to train on")
    parser.add_argument("--length", type=int, default=256, help="word pieces of a document at the most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="score with torch.compile as well (minutes to compile)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    options.model = str(find_model(options.model))
    torch.set_num_threads(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    device = torch.device(options.device)
    best = product_rate(device)

    model = CrossEncoder(options.model, query_length=QUERY, document_length=options.length).to(device)
    precision, _ = resolve("auto", device)
    lists = Lists.open(options.lists)
    drawn = np.random.default_rng(0).permutation(lists.size)[: options.scored]
    everything = cut(lists, model)
    pairs = [everything[i] for i in drawn]
    inputs = model.inputs(lists)
    lengths = inputs.lengths(lists.row_numbers)
    length = QUERY + options.length + 3

    scoring: dict[str, Callable[[Texts], object]] = {}
    if options.scored:
        scoring = {
            "sentence-transformers `predict`": their_scoring(options.model, length, device, "float32"),
            "sentence-transformers bf16": their_scoring(options.model, length, device, "bfloat16"),
            "rerank fp32": ours(model, "fp32"),
            f"rerank {precision}": ours(model, precision),
        }
        padded = copy.deepcopy(model)
        if reads_flat(padded.network):
            del getattr(padded.network, padded.network.base_model_prefix).encoder.forward
        scoring[f"rerank {precision}, padded"] = ours(padded, precision)
        if options.compile:
            compiled = copy.deepcopy(padded)
            compiled.network = torch.compile(compiled.network, dynamic=True)  # type: ignore[assignment]
            scoring[f"rerank {precision}, padded, compiled"] = ours(compiled, precision)
    some = usable_lists(options)
    training: dict[str, Callable[[], float]] = {}
    if options.trained:
        for words, rate in {"dropout 0.1": 0.1, "no dropout": 0.0}.items():
            for bf16 in (False, True):
                who = f"sentence-transformers {'bf16' if bf16 else 'fp32'}, {words}"
                training[who] = partial(by_itself, their_training, options, rate, bf16)
            training[f"rerank, {words}"] = partial(by_itself, ours_training, options, rate)

    seconds = dict.fromkeys([*scoring, *training], np.inf)
    for score in scoring.values():
        score(pairs[:32])  # nothing is timed the first time
    for _ in range(options.rounds):
        for name, score in scoring.items():
            started = time.perf_counter()
            score(pairs)
            seconds[name] = min(seconds[name], time.perf_counter() - started)
        for name, train in training.items():
            seconds[name] = min(seconds[name], train())
    best = max(best, product_rate(device))

    parts = [lengths[a:b] for a, b in pairwise(lists.offsets)]
    together, apart = padding([lengths[drawn]], model.budget), padding(parts, model.budget)
    machine = f"{options.threads} threads, {device}, torch {torch.__version__}"
    print(f"{machine}; bf16 product {best / 1e12:.2f} TFLOP/s; ", end="")
    print(f"padding: {together:.1%} of the tokens of the scored pairs, {apart:.1%} of those of a list by itself\n")
    print("| work | tokens | pairs/s | against | of the best |\n|---|---|---|---|---|")
    timed = slice(int(some.offsets[1]), None) if options.trained else slice(0)
    kept = inputs.lengths(some.row_numbers)[timed]
    for name, took in seconds.items():
        work, first = (lengths[drawn], next(iter(scoring))) if name in scoring else (kept, "")
        if not first:
            ending = name.partition(", ")[2]
            first = min((n for n in training if n.startswith("sent") and n.endswith(ending)), key=seconds.__getitem__)
        need = operations(model, work) * (1 if name in scoring else 3)
        row = f"{len(work)} x {work.mean():.0f} | {len(work) / took:.1f} | {seconds[first] / took:.2f}"
        print(f"| {'scoring' if name in scoring else 'training'}, {name} | {row} | {need / took / best:.0%} |")


if __name__ == "__main__":
    main()
