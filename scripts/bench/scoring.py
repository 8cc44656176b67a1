"""Scoring pairs in float32, bf16 and by exported files, next to sentence-transformers: speed, and the ranking.

    OMP_NUM_THREADS=1 python scripts/bench/scoring.py --model runs/x/best --lists lists/scifact-test --exported exported

prints Markdown. All contenders score the same texts in turns, in one process and one thread, tokenisation included; a
row gives the best of its rounds in seconds of the processor, since whatever else the machine does only ever adds. The
ranking is measured on some lists (``--skip`` goes on where another call stopped): nDCG@10 of each contender's run, and
the distance of its scores from float32's, or from those of the first row. ``--exported`` is a folder that ``rerank
export --model`` made; every file in it is a contender.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from rerank.evaluation.measures import evaluate
from rerank.kernels.precision import Precision
from rerank.lists.tokens import Tokens
from rerank.lists.view import Lists
from rerank.models.base import Inputs
from rerank.models.score import score_candidates
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.graphs import opened, scores_of
from rerank.storage.arrow import Array

Texts = list[tuple[str, str]]


def read(model: CrossEncoder, pairs: Texts) -> tuple[Inputs, Array]:
    """The tokens of pairs, and their rows."""
    sides = []
    for texts, limit in zip(zip(*pairs, strict=True), (model.query_length, model.document_length), strict=True):
        ids = model.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        sides.append([np.asarray(row[:limit], dtype=np.int64) for row in ids])
    rows = np.arange(len(pairs))
    return model._pairs(Tokens.of(*sides), rows, rows), rows


def ours(model: CrossEncoder, precision: Precision) -> Callable[[Texts], Array]:
    """Our length-sorted chunks, in some arithmetic."""

    def score(pairs: Texts) -> Array:
        inputs, rows = read(model, pairs)
        return score_candidates(model, inputs, rows, rows, precision=precision)

    return score


def exported(model: CrossEncoder, graph: Path) -> Callable[[Texts], Array]:
    """The same tokens by an exported file."""
    run = opened(graph)
    return lambda pairs: scores_of(run, *read(model, pairs))


def sentence_transformers(folder: str, length: int) -> Callable[[Texts], Array]:
    from sentence_transformers import CrossEncoder as Theirs

    model = Theirs(folder, max_length=length)
    return lambda pairs: np.asarray(model.predict(pairs, show_progress_bar=False))


def texts_of(lists: Lists, documents: list[str] | None = None) -> Texts:
    """The texts of all pairs; ``documents``, by row of the store, may stand in for the stored ones."""
    queries = lists.store.queries.column("text").to_pylist()
    documents = documents or lists.store.documents.column("text").to_pylist()
    asked = np.repeat(lists.queries, lists.lengths)
    return [(queries[q], documents[d]) for q, d in zip(asked, lists.documents, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a trained cross-encoder")
    parser.add_argument("--lists", required=True, help="lists folder with judgments")
    parser.add_argument("--pairs", type=int, default=300, help="pairs of the speed test, drawn from all lists")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=30, help="lists of the ranking test; 0 leaves it out")
    parser.add_argument("--skip", type=int, default=0, help="lists left out before those of the ranking test")
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--exported", type=Path, help="folder that rerank export --model made")
    parser.add_argument("--only", nargs="*", default=[""], help="contenders whose names hold one of these")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"

    model = CrossEncoder(options.model)
    length = model.query_length + model.document_length + model.template.special
    lists = Lists.open(options.lists).top(options.depth)
    everything = texts_of(lists)
    drawn = np.random.default_rng(0).permutation(len(everything))[: options.pairs]
    pairs = [everything[i] for i in drawn]
    every: dict[str, Callable[[], Callable[[Texts], Array]]] = {
        "sentence-transformers `predict`": lambda: sentence_transformers(options.model, length),
        "rerank fp32": lambda: ours(model, "fp32"),
        "rerank bf16": lambda: ours(model, "bf16"),
    }
    for graph in sorted(
        [*options.exported.glob("*/*.onnx"), *options.exported.glob("*/*.xml")] if options.exported else []
    ):
        every[graph.name] = partial(exported, model, graph)
    contenders = {name: make() for name, make in every.items() if any(word in name for word in options.only)}
    seconds = {name: np.inf for name in contenders}
    for score in contenders.values():
        score(pairs[:32])
    for _ in range(options.rounds):
        for name, score in contenders.items():
            started = time.process_time()
            score(pairs)
            seconds[name] = min(seconds[name], time.process_time() - started)
    ndcg, change, swapped = {}, {}, {}
    if options.queries:
        some = lists.select(np.arange(options.skip, min(options.skip + options.queries, len(lists))))
        texts, exact = texts_of(some), None
        assert some.qrels is not None, "lists without judgments"
        for name in sorted(contenders, key=lambda name: name != "rerank fp32"):
            scores = np.asarray(contenders[name](texts), dtype=np.float32)
            measured = evaluate(some.run(scores), some.qrels, "nDCG@10", name=name)
            ndcg[name] = measured.mean["nDCG@10"]
            exact = scores if exact is None else exact
            change[name] = float(np.abs(scores - exact).max())
            swapped[name] = kendall(some, scores, exact)
    first = next(iter(seconds))
    print(f"| contender | pairs/s | against {first} | nDCG@10 | largest change of a score | Kendall's τ |")
    print("|---|---|---|---|---|---|")
    for name, took in seconds.items():
        ranking = f"{ndcg[name]:.4f} | {change[name]:.3f} | {swapped[name]:.4f}" if ndcg else " | | "
        print(f"| {name} | {len(pairs) / took:.0f} | {seconds[first] / took:.2f} | {ranking} |")


def kendall(lists: Lists, one: Array, other: Array) -> float:
    """Mean over the lists of Kendall's tau between two scorings."""
    from scipy.stats import kendalltau

    ends = zip(lists.offsets[:-1], lists.offsets[1:], strict=True)
    return float(np.mean([kendalltau(one[a:b], other[a:b]).statistic for a, b in ends if b - a > 1]))


if __name__ == "__main__":
    main()
