"""Texts: speed beside sentence-transformers, and the ranking in each precision.

    python scripts/bench/text.py pairs --lists lists/scifact-train [--scored 600] [--trained 4] [--threads 2]
    python scripts/bench/text.py pairs --tokens 64 128 256 512 [--random base] [--only rerank "Hugging Face"] …
    OMP_NUM_THREADS=1 python scripts/bench/text.py ranking --model runs/x/best --lists LISTS

Each prints a Markdown table: as in docs/internals/speed.md.

pairs: scoring the same texts (documents cut to ``--length`` word pieces beforehand, so that all read the same tokens),
    tokenisation included; theirs at its defaults, and in bf16. Training on the same whole
    lists, one list a step, AdamW; theirs by ``CrossEncoderTrainer`` with ``LambdaLoss`` in micro-batches of 16, which
    tokenises in each step; ours with SmoothI-nDCG on token ids that were cached before, in a process of its own. The
    first step is left out. Contenders take turns; a row has the best of its rounds by the clock. *Of the best* is what
    all of the encoder's products and attention need (thrice in training; padding is not counted as work) over what a
    product of 4096 x 4096 matrices in bf16 reaches before and after. ``--tokens`` takes pairs of random words of one
    length, so that padding costs nobody anything; ``--random`` a model of random weights: ``base`` has the sizes of
    BERT-base, ``modern`` 6 layers of ModernBERT-base's.
ranking: float32 and bf16: seconds of the processor, the best of the rounds; nDCG@10 of ``--queries`` lists, and how far
    scores are from float32's, or the first's.
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
import pandas as pd
import torch
from common import best_of, head, parser_of, row
from models import operations, product_rate, random_model

from rerank.evaluation.measures import Evaluator
from rerank.kernels.packing import pack
from rerank.kernels.precision import Precision, resolve
from rerank.lists.tokens import Tokens
from rerank.lists.view import Lists
from rerank.losses import SmoothINDCG
from rerank.models.base import Inputs
from rerank.models.folder import find_model
from rerank.models.scorer import score_candidates
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.network import read_config, read_tokenizer
from rerank.storage.arrow import Array
from rerank.training.accumulate import GradientAccumulator, MemoryLimits, ScoringModule
from rerank.training.batches import ListSample, Targets
from rerank.training.launch import make_accelerator

Texts = list[tuple[str, str]]
Score = Callable[[Texts], Any]

MINILM = "sentence-transformers/all-MiniLM-L6-v2"

QUERY = 64
"""Word pieces of a query at the most."""

QUERY_WORDS = 8
"""Words of a random query."""

RANDOM: dict[str, tuple[str, dict[str, int]]] = {
    "base": ("BERT-base", {}),
    "modern": ("ModernBERT-base", {"num_hidden_layers": 6}),
}


def lists_of(options: argparse.Namespace) -> Lists:
    """Open the named lists, or make pairs of random words of one token each, all of one length."""
    if options.lists:
        return Lists.open(options.lists)
    rng, vocabulary = np.random.default_rng(0), read_tokenizer(Path(options.model)).get_vocab()
    words = np.array(sorted(word for word in vocabulary if word.isascii() and word.isalpha() and word.islower()))
    rows = []
    for q in range(max(options.trained, -(-options.scored // options.depth))):
        query = " ".join(rng.choice(words, QUERY_WORDS))
        for d in range(options.depth):
            text = " ".join(rng.choice(words, options.of_tokens - QUERY_WORDS - 3))
            rows.append((f"q{q}", query, f"d{q}-{d}", text, int(d < 2)))
    return Lists.from_dataframe(pd.DataFrame(rows, columns=["query_id", "query", "doc_id", "text", "grade"]))


def usable_lists(options: argparse.Namespace) -> Lists:
    """Select the lists to train on."""
    lists = lists_of(options)
    some = lists.select(np.flatnonzero(np.add.reduceat(lists.grades > 0, lists.offsets[:-1]) > 0)).top(options.depth)
    return some.select(np.arange(min(options.trained, len(some))))


def texts_of(lists: Lists, documents: list[str] | None = None) -> Texts:
    """Return the texts of all pairs; ``documents``, by row of the store, replace the stored ones."""
    queries = lists.store.queries.column("text").to_pylist()
    documents = documents or lists.store.documents.column("text").to_pylist()
    of_row = np.repeat(lists.queries, lists.lengths)
    return [(queries[q], documents[d]) for q, d in zip(of_row, lists.documents, strict=True)]


def cut(lists: Lists, model: CrossEncoder) -> Texts:
    """Return the texts of all pairs, documents cut as the model cuts them."""
    texts = lists.store.documents.column("text").to_pylist()
    encoded = model.tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ends, limit = encoded["offset_mapping"], model.document_length
    short = [text if len(end) <= limit else text[: end[limit - 1][1]] for text, end in zip(texts, ends, strict=True)]
    return texts_of(lists, short)


def padding(parts: list[np.ndarray], budget: int) -> float:
    """Return padded over real tokens, less one, if each part is cut into chunks by itself."""
    padded = sum(part[chunk].max() * len(chunk) for part in parts for chunk in pack(part, budget))
    return float(padded / sum(part.sum() for part in parts) - 1)


def read(model: CrossEncoder, pairs: Texts) -> tuple[Inputs, Array]:
    """Tokenise pairs; return the tokens and their rows."""
    sides = []
    for texts, limit in zip(zip(*pairs, strict=True), (model.query_length, model.document_length), strict=True):
        ids = model.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        sides.append([np.asarray(row[:limit], dtype=np.int64) for row in ids])
    rows = np.arange(len(pairs))
    return model.token_inputs(Tokens.of(*sides), rows, rows), rows


def our_scoring(model: CrossEncoder, precision: Precision) -> Score:
    """Score with rerank in a given precision."""

    def score(pairs: Texts) -> Array:
        inputs, rows = read(model, pairs)
        return score_candidates(model, inputs, rows, rows, precision=precision)

    return score


def their_scoring(name: str, length: int, device: str, dtype: str) -> Score:
    """Score with ``predict`` of sentence-transformers."""
    from sentence_transformers import CrossEncoder as Theirs

    model = Theirs(name, max_length=length, num_labels=1, device=device, model_kwargs={"dtype": dtype})
    return lambda pairs: model.predict(pairs, show_progress_bar=False)


def our_training(options: argparse.Namespace, lists: Lists, dropout: float) -> float:
    """Train with rerank; return the seconds of all lists but the first."""
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    torch.manual_seed(0)
    model = CrossEncoder(options.model, query_length=options.query, document_length=options.length, dropout=dropout)
    model.to(device).train()
    precision, _ = resolve("auto", device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    limits = MemoryLimits(model.budget, 32_768)
    accelerator = make_accelerator(precision)
    forward, inputs = accelerator.prepare(ScoringModule(model)), model.inputs(lists)
    gradients = GradientAccumulator(accelerator, forward, inputs, Targets(lists, SmoothINDCG()), limits)
    ends: list[float] = []
    for i, (start, end) in enumerate(pairwise(lists.offsets)):
        gradients.accumulate([ListSample(i, np.arange(start, end), 0)], i)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize()
        ends.append(time.perf_counter())
    return ends[-1] - ends[0]


def their_training(options: argparse.Namespace, lists: Lists, dropout: float, bf16: bool) -> float:
    """Train with sentence-transformers; return the seconds of all lists but the first."""
    from datasets import Dataset
    from sentence_transformers import CrossEncoder as Theirs
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import LambdaLoss
    from transformers import PrinterCallback, TrainerCallback

    torch.set_num_threads(options.threads)
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    config = vars(read_config(find_model(options.model), dropout))
    rates = {name: value for name, value in config.items() if "dropout" in name and value == dropout}
    most = options.length + options.query + 3
    model = Theirs(options.model, max_length=most, num_labels=1, device=options.device, config_kwargs=rates)
    texts = cut(lists, CrossEncoder(options.model, query_length=options.query, document_length=options.length))
    spans = list(pairwise(lists.offsets))
    columns = {
        "query": [texts[a][0] for a, _ in spans],
        "docs": [[text for _, text in texts[a:b]] for a, b in spans],
        "labels": [lists.grades[a:b].tolist() for a, b in spans],
    }
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
            seed=0,
        )
        loss = LambdaLoss(model, mini_batch_size=16)
        data = Dataset.from_dict(columns)
        trainer = CrossEncoderTrainer(model=model, args=arguments, train_dataset=data, loss=loss, callbacks=[Clock()])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return ends[-1] - ends[0]


def train_alone(train: Callable[..., float], options: argparse.Namespace, *how: Any) -> float:
    """Train in a process of its own."""
    return train(options, usable_lists(options), *how)


def pairs(options: argparse.Namespace) -> None:
    """Compare the speed of scoring and training."""
    if bool(options.lists) == bool(options.tokens):
        raise SystemExit("either --lists or --tokens")
    spawned = partial(ProcessPoolExecutor, 1, mp_context=get_context("spawn"))  # how ours keeps memory is not theirs
    options.named = f"random {options.random}" if options.random else options.model
    with tempfile.TemporaryDirectory() as folder, spawned() as mine, spawned() as theirs:
        if options.random:
            shape, settings = RANDOM[options.random]
            options.model = random_model(shape, Path(folder), read_tokenizer(find_model(MINILM)), **settings)
        for tokens in options.tokens or [None]:
            options.of_tokens = tokens
            if tokens:
                options.query, options.length = QUERY_WORDS, tokens - QUERY_WORDS - 3
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
    texts = [everything[i] for i in drawn]
    inputs = model.inputs(lists)
    lengths = inputs.lengths(lists.row_numbers)

    scorers = wanted(all_scorers(options, model, precision), options) if options.scored else {}
    scoring = {name: make() for name, make in scorers.items()}
    training = wanted(all_trainings(options, mine, theirs), options) if options.trained else {}
    for score in scoring.values():
        score(texts[:32])  # nothing is timed the first time
    seconds = best_of({name: partial(score, texts) for name, score in scoring.items()}, options.rounds)
    for _ in range(options.rounds):
        for name, train in training.items():
            seconds[name] = min(seconds.get(name, np.inf), train())
    best = max(best, product_rate(device))

    apart = padding([lengths[a:b] for a, b in pairwise(lists.offsets)], model.budget)
    together = f", {padding([lengths[drawn]], model.budget):.1%} of those of the scored pairs" if len(drawn) else ""
    print(f"\n{options.named}, {options.threads} threads, {device}, torch {torch.__version__}", end="; ")
    print(f"bf16 product {best / 1e12:.2f} TFLOP/s", end="; ")
    print(f"padding: {apart:.1%} of the tokens of a list by itself{together}\n")
    head("work", "tokens", "pairs/s", "against", "of the best")
    some = usable_lists(options)
    trained_lengths = inputs.lengths(some.row_numbers)[int(some.lengths[0]) :] if training else lengths[:0]
    for name, took in seconds.items():
        scored = name in scoring
        work = lengths[drawn] if scored else trained_lengths
        need = operations(model.network, work) * (1 if scored else 3)
        against = seconds[next(iter(scoring))] if scored else _their_best(name, seconds)
        rates = f"{len(work) / took:.1f}", f"{against / took:.2f}", f"{need / took / best:.0%}"
        row(f"{'scoring' if scored else 'training'}, {name}", f"{len(work)} x {work.mean():.0f}", *rates)


def wanted(contenders: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    return {name: contender for name, contender in contenders.items() if any(part in name for part in options.only)}


def _their_best(name: str, seconds: dict[str, float]) -> float:
    """Return the seconds of the faster precision of sentence-transformers with the same dropout, or of the first."""
    alike = {other: took for other, took in seconds.items() if other.endswith(name.rpartition(", ")[2])}
    theirs = [took for other, took in alike.items() if other.startswith("sentence")]
    return min(theirs or alike.values())


def all_scorers(
    options: argparse.Namespace, model: CrossEncoder, precision: Precision
) -> dict[str, Callable[[], Score]]:
    """Return a function per contender that prepares its scoring."""
    length = options.query + options.length + 3

    return {
        "sentence-transformers `predict`": lambda: their_scoring(options.model, length, options.device, "float32"),
        "sentence-transformers bf16": lambda: their_scoring(options.model, length, options.device, "bfloat16"),
        "rerank fp32": lambda: our_scoring(copy.deepcopy(model), "fp32"),
        f"rerank {precision}": lambda: our_scoring(model, precision),
    }


def all_trainings(
    options: argparse.Namespace, mine: ProcessPoolExecutor, theirs: ProcessPoolExecutor
) -> dict[str, Callable[[], float]]:
    """Return a function per contender that times its training."""

    def timed(process: ProcessPoolExecutor, *work: Any) -> Callable[[], float]:
        return lambda: process.submit(train_alone, *work).result()

    trainings = {}
    for words, rate in {"dropout 0.1": 0.1, "no dropout": 0.0}.items():
        for precision, bf16 in {"fp32": False, "bf16": True}.items():
            name = f"sentence-transformers {precision}, {words}"
            trainings[name] = timed(theirs, their_training, options, rate, bf16)
        trainings[f"rerank, {words}"] = timed(mine, our_training, options, rate)
    return trainings


def ranking(options: argparse.Namespace) -> None:
    """Compare speed and nDCG@10 of float32 and bf16."""
    model = CrossEncoder(options.model)
    length = model.query_length + model.document_length + model.template.special
    lists = Lists.open(options.lists).top(options.depth)
    texts = texts_of(lists)
    texts = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[: options.scored]]
    makers: dict[str, Callable[[], Score]] = {
        "sentence-transformers `predict`": lambda: their_scoring(options.model, length, "cpu", "float32"),
        "rerank fp32": lambda: our_scoring(model, "fp32"),
        "rerank bf16": lambda: our_scoring(model, "bf16"),
    }
    contenders = {name: make() for name, make in wanted(makers, options).items()}
    for score in contenders.values():
        score(texts[:32])
    works = {name: partial(score, texts) for name, score in contenders.items()}
    seconds = best_of(works, options.rounds, time.process_time)
    some = lists.select(np.arange(min(options.queries, len(lists))))
    quality = qualities(some, contenders) if options.queries else {}
    first = next(iter(seconds))
    head("contender", "pairs/s", f"against {first}", "nDCG@10", "largest change of a score", "Kendall's τ")
    for name, took in seconds.items():
        row(name, f"{len(texts) / took:.0f}", f"{seconds[first] / took:.2f}", *quality.get(name, [""] * 3))


def qualities(lists: Lists, contenders: dict[str, Score]) -> dict[str, list[str]]:
    """Compute nDCG@10 of each, the largest difference from float32's scores, and Kendall's tau with them."""
    from scipy.stats import kendalltau

    assert lists.qrels is not None, "lists without judgments"
    texts, ends = texts_of(lists), [(a, b) for a, b in pairwise(lists.offsets) if b - a > 1]
    exact, cells = None, {}
    for name in sorted(contenders, key=lambda name: name != "rerank fp32"):
        scores = np.asarray(contenders[name](texts), dtype=np.float32)
        exact = scores if exact is None else exact
        mean = Evaluator(lists.qrels, "nDCG@10")(lists.run(scores), name).mean["nDCG@10"]
        tau = np.mean([kendalltau(scores[a:b], exact[a:b]).statistic for a, b in ends])
        cells[name] = [f"{mean:.4f}", f"{np.abs(scores - exact).max():.3f}", f"{tau:.4f}"]
    return cells


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["pairs", "ranking"])
    parser.add_argument("--lists", help="lists folder with judgments")
    parser.add_argument("--tokens", type=int, nargs="+", help="random pairs of so many tokens in place of lists")
    parser.add_argument("--model", default=MINILM)
    parser.add_argument("--random", choices=RANDOM, help="random weights in place of a model")
    parser.add_argument("--scored", type=int, default=600, help="pairs to score, drawn from all lists; 0 leaves it out")
    parser.add_argument("--trained", type=int, default=4, help="lists, the first not timed; 0 leaves it out")
    parser.add_argument("--depth", type=int, default=50, help="documents of a list")
    parser.add_argument("--length", type=int, default=256, help="word pieces of a document at the most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[""], help="contenders whose names hold one of these")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--queries", type=int, default=30, help="ranking: lists that are measured; 0 leaves it out")
    options = parser.parse_args()
    options.query = QUERY
    options.model = str(find_model(options.model))
    torch.set_num_threads(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    {"pairs": pairs, "ranking": ranking}[options.what](options)


if __name__ == "__main__":
    main()
