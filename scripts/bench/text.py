"""Scoring and training on real lists, side by side with sentence-transformers.

    python scripts/bench/text.py --lists lists/scifact-train [--model sentence-transformers/all-MiniLM-L6-v2]
        [--scored 600] [--trained 4] [--depth 50] [--length 256] [--threads 2] [--rounds 3] [--compile]
    python scripts/bench/text.py --tokens 64 128 256 512 [--random base] [--only rerank "Hugging Face"] …

prints Markdown. *Scoring*: the same texts (documents cut to ``--length`` word pieces beforehand, so that both read the
same tokens), tokenisation included; theirs at its defaults, and in bf16; ours with the usual ways of attention and
dropout, with our own, with PyTorch's; with padding and all of the last layer, and that compiled. *Hugging Face* is the
architecture's own forward pass over our sorted chunks, nothing of it replaced.
*Training*: the same whole lists, one list a step, AdamW; theirs by ``CrossEncoderTrainer`` with ``LambdaLoss`` in
micro-batches of 16, which tokenises in each step; ours with SmoothI-nDCG on token ids that were cached before, as it
always trains; ours in one process, theirs in another. The first step is left out (of theirs it is another list, of as
many documents). Contenders take turns; a row has the best of its rounds by the clock. *Of the best* is what all of the
encoder's products and attention need (two operations a weight and token, four a dimension and pair of tokens, thrice
that in training; padding is not counted as work) over what a product of 4096 x 4096 matrices in bf16 reaches before and
after. ``--tokens`` takes pairs of random words in place of lists, all of one length, so that padding costs nobody
anything; ``--random`` a model of random weights, with MiniLM's vocabulary: ``base`` has the sizes of BERT-base,
``modern`` 6 layers of ModernBERT-base's.
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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rates import operations, product_rate
from scoring import Texts, ours, texts_of

from rerank.kernels.flat import stop_reading_flat
from rerank.kernels.memory import keep_freed
from rerank.kernels.packing import pack
from rerank.kernels.precision import resolve
from rerank.kernels.ways import Kernels
from rerank.lists.view import Lists
from rerank.losses import SmoothINDCG
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.network import read_config, read_tokenizer
from rerank.models.weights import find_model
from rerank.training.batches import Group
from rerank.training.step import Gradients, Limits

QUERY = 64
"""Word pieces of a query at the most."""

ASKED = 8
"""Words of a random query."""

MINILM = "sentence-transformers/all-MiniLM-L6-v2"

WAYS: dict[str, tuple[Kernels, bool]] = {
    "rerank": ("auto", True),
    "rerank, own kernels": ("own", True),
    "rerank, torch's kernels": ("torch", True),
    "Hugging Face padded": ("torch", False),
}
"""What is compared in training: the ways of attention and dropout, and whether chunks are flat."""


def random_model(kind: str, folder: Path) -> str:
    """Write a model of random weights, with MiniLM's vocabulary."""
    from transformers import AutoModelForSequenceClassification, BertConfig, ModernBertConfig

    tokenizer = read_tokenizer(find_model(MINILM))
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "cls", "sep")}
    sizes: dict[str, Any] = {"vocab_size": len(tokenizer), "num_labels": 1} | ids
    sizes |= {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids["sep_token_id"]}
    config = BertConfig(**sizes) if kind == "base" else ModernBertConfig(num_hidden_layers=6, **sizes)
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def random_lists(options: argparse.Namespace, tokens: int) -> Lists:
    """Lists of pairs of random words, each of which is a token, all pairs of so many tokens."""
    import pandas as pd

    rng, vocabulary = np.random.default_rng(0), read_tokenizer(Path(options.model)).get_vocab()
    words = np.array(sorted(word for word in vocabulary if word.isascii() and word.isalpha() and word.islower()))
    rows = [
        (f"q{q}", " ".join(asked), f"d{q}-{d}", " ".join(rng.choice(words, tokens - ASKED - 3)), int(d < 2))
        for q in range(max(options.trained, -(-options.scored // options.depth)))
        for asked in [rng.choice(words, ASKED)]
        for d in range(options.depth)
    ]
    return Lists.from_dataframe(pd.DataFrame(rows, columns=["query_id", "query", "doc_id", "text", "grade"]))


def lists_of(options: argparse.Namespace) -> Lists:
    """The lists that were asked for."""
    return random_lists(options, options.of_tokens) if options.of_tokens else Lists.open(options.lists)


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


def ours_training(
    options: argparse.Namespace, lists: Lists, dropout: float, kernels: Kernels = "auto", flat: bool = True
) -> float:
    """Seconds of all lists but the first; ours."""
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    if device.type == "cpu":
        keep_freed()  # as the trainer does
    model = CrossEncoder(options.model, query_length=options.query, document_length=options.length, dropout=dropout)
    model.to(device).train()
    precision, _ = resolve("auto", device)
    if not flat:
        stop_reading_flat(model.network)
    model.settle(precision, kernels)
    inputs = model.inputs(lists)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    gradients = Gradients(model, inputs, lists, SmoothINDCG(), precision, Limits(model.budget, 32_768), gradient="auto")
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
    from transformers import PrinterCallback, TrainerCallback
    from transformers.utils import logging as hf_logging

    torch.set_num_threads(options.threads)
    hf_logging.set_verbosity_error()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ends.append(time.perf_counter())

    config = vars(read_config(find_model(options.model), dropout))
    rates = {name: value for name, value in config.items() if "dropout" in name and value == dropout}
    model = Theirs(
        options.model,
        max_length=options.length + options.query + 3,
        num_labels=1,
        device=options.device,
        config_kwargs=rates,
    )
    texts = cut(lists, CrossEncoder(options.model, query_length=options.query, document_length=options.length))
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
        trainer = CrossEncoderTrainer(model=model, args=arguments, train_dataset=data, loss=loss, callbacks=[clock])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return clock.ends[-1] - clock.ends[0]


def usable_lists(options: argparse.Namespace) -> Lists:
    """The lists to train on."""
    lists = lists_of(options)
    some = lists.select(np.flatnonzero(np.add.reduceat(lists.grades > 0, lists.offsets[:-1]) > 0)).top(options.depth)
    return some.select(np.arange(options.trained))


def _train(train: Callable[..., float], options: argparse.Namespace, *rest: Any) -> float:
    return train(options, usable_lists(options), *rest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", help="lists folder with judgments")
    parser.add_argument("--tokens", type=int, nargs="+", help="random pairs of so many tokens in place of lists")
    parser.add_argument("--model", default=MINILM)
    parser.add_argument("--random", choices=["base", "modern"], help="random weights in place of a model")
    parser.add_argument("--scored", type=int, default=600, help="pairs to score, drawn from all lists; 0 leaves it out")
    parser.add_argument("--trained", type=int, default=4, help="lists, the first not timed; 0 leaves it out")
    parser.add_argument("--depth", type=int, default=50, help="documents of a list to train on")
    parser.add_argument("--length", type=int, default=256, help="word pieces of a document at the most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[""], help="contenders whose names hold one of these")
    parser.add_argument("--compile", action="store_true", help="score with torch.compile as well (minutes to compile)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if bool(options.lists) == bool(options.tokens):
        parser.error("either --lists or --tokens")
    torch.set_num_threads(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    spawned = partial(ProcessPoolExecutor, 1, mp_context=get_context("spawn"))  # how ours keeps memory is not theirs
    options.named = f"random {options.random}" if options.random else options.model
    with tempfile.TemporaryDirectory() as folder, spawned() as mine, spawned() as theirs:
        options.model = random_model(options.random, Path(folder)) if options.random else str(find_model(options.model))
        for tokens in options.tokens or [None]:
            options.of_tokens, options.query = tokens, QUERY
            if tokens:
                options.query, options.length = ASKED, tokens - ASKED - 3
            compare(options, mine, theirs)


def compare(options: argparse.Namespace, mine: ProcessPoolExecutor, theirs: ProcessPoolExecutor) -> None:
    """Print the table of some lists."""
    device = torch.device(options.device)
    best = product_rate(device)
    model = CrossEncoder(options.model, query_length=options.query, document_length=options.length).to(device)
    precision, _ = resolve("auto", device)
    lists = lists_of(options)
    drawn = np.random.default_rng(0).permutation(lists.size)[: options.scored]
    everything = cut(lists, model)
    pairs = [everything[i] for i in drawn]
    inputs = model.inputs(lists)
    lengths = inputs.lengths(lists.row_numbers)
    length = options.query + options.length + 3

    def told(kernels: Kernels, flat: bool) -> CrossEncoder:
        copied = copy.deepcopy(model)
        if not flat:
            stop_reading_flat(copied.network)
        copied.settle(precision, kernels)
        return copied

    every: dict[str, Callable[[], Callable[[Texts], object]]] = {
        "sentence-transformers `predict`": lambda: their_scoring(options.model, length, device, "float32"),
        "sentence-transformers bf16": lambda: their_scoring(options.model, length, device, "bfloat16"),
        "rerank fp32": lambda: ours(copy.deepcopy(model), "fp32"),
        f"rerank {precision}": lambda: ours(model, precision),
        f"rerank {precision}, own kernels": lambda: ours(told("own", True), precision),
        f"rerank {precision}, torch's kernels": lambda: ours(told("torch", True), precision),
        f"rerank {precision}, padded": lambda: ours(told("auto", False), precision),
        f"Hugging Face {precision}, padded": lambda: ours(told("torch", False), precision),
    }
    if options.compile:

        def compiled() -> Callable[[Texts], object]:
            padded = told("auto", False)
            padded.network = torch.compile(padded.network, dynamic=True)  # type: ignore[assignment]
            return ours(padded, precision)

        every[f"rerank {precision}, padded, compiled"] = compiled
    asked = [name for name in every if options.scored and any(part in name for part in options.only)]
    scoring = {name: every[name]() for name in asked}
    some = usable_lists(options)
    training: dict[str, Callable[[], float]] = {}
    for words, rate in {"dropout 0.1": 0.1, "no dropout": 0.0}.items():
        for bf16 in (False, True):
            who = f"sentence-transformers {'bf16' if bf16 else 'fp32'}, {words}"
            training[who] = partial(trained, theirs, their_training, options, rate, bf16)
        for way, how in WAYS.items():
            training[f"{way}, {words}"] = partial(trained, mine, ours_training, options, rate, *how)
    asked = [name for name in training if options.trained and any(part in name for part in options.only)]
    training = {name: training[name] for name in asked}

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
    apart = padding(parts, model.budget)
    together = f", {padding([lengths[drawn]], model.budget):.1%} of those of the scored pairs" if len(drawn) else ""
    machine = f"{options.named}, {options.threads} threads, {device}, torch {torch.__version__}"
    print(f"\n{machine}; bf16 product {best / 1e12:.2f} TFLOP/s; ", end="")
    print(f"padding: {apart:.1%} of the tokens of a list by itself{together}; ", end="")
    print(f"taken: {model.settle(precision)}\n")
    print("| work | tokens | pairs/s | against | of the best |\n|---|---|---|---|---|")
    timed = slice(int(some.offsets[1]), None) if options.trained else slice(0)
    kept = inputs.lengths(some.row_numbers)[timed]
    for name, took in seconds.items():
        work, kind = (lengths[drawn], scoring) if name in scoring else (kept, training)
        alike = [n for n in kind if name in scoring or n.endswith(name.rpartition(", ")[2])]
        first = alike[0] if name in scoring else min(alike, key=lambda n: (not n.startswith("sent"), seconds[n]))
        need = operations(model.network, work) * (1 if name in scoring else 3)
        row = f"{len(work)} x {work.mean():.0f} | {len(work) / took:.1f} | {seconds[first] / took:.2f}"
        print(
            f"| {'scoring' if name in scoring else 'training'}, {name} | {row} | {need / took / best:.0%} |", flush=True
        )


def trained(pool: ProcessPoolExecutor, train: Callable[..., float], options: argparse.Namespace, *rest: Any) -> float:
    """Seconds that training takes in another process."""
    return pool.submit(_train, train, options, *rest).result()


if __name__ == "__main__":
    main()
