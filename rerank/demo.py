"""``rerank demo``: search the Python standard library, from BM25 to a table with p-values, on a laptop."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rerank.collections import Collection, Document, Qrels, Query
from rerank.collections.demo import DemoCollection, summary
from rerank.errors import UserError
from rerank.files import atomic_folder, atomic_write
from rerank.lists.build import build_lists
from rerank.lists.data import Data, ListsData
from rerank.lists.folds import FoldsData
from rerank.lists.sampling import PositivesNegatives, Sampler
from rerank.lists.view import Lists
from rerank.retrieval.bm25 import BM25, build_index
from rerank.retrieval.runs import Scored, read_run, write_run

if TYPE_CHECKING:
    from rerank.training.config import TrainConfig

log = logging.getLogger("rerank")

ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
FOLDS = 3
HELD_OUT = "cut a string into pieces at a separator"
"""A question of the first fold, whose model has not seen it."""
DEPTH = 50
WEIGHT = 0.5
"""BM25's share in the interpolated run: equal shares, fixed beforehand, so that nothing is tuned on the questions."""
WEAK_QUERIES = 1500
SEED = 42
MEASURES = "nDCG@10 P@5 AP RR"
MODEL: dict[str, Any] = {"query_length": 32, "document_length": 128, "dropout": 0.0}


class WeakCollection:
    """Docstrings without their first sentence; some of those sentences are the queries, each relevant for its own."""

    name = "demo-weak"

    def __init__(self, demo: Collection, count: int, seed: int) -> None:
        parts = [(document.id, *summary(document)) for document in demo.documents()]
        self._documents = [Document(name, rest) for name, _, rest in parts]
        useful = [(name, first) for name, first, _ in parts if len(first.split()) >= 4]
        chosen = np.random.default_rng(seed).choice(len(useful), size=min(count, len(useful)), replace=False)
        self._queries = [Query(*useful[i]) for i in sorted(chosen)]
        self._fingerprint = demo.fingerprint()

    def documents(self) -> Iterator[Document]:
        """All documents, shortened."""
        return iter(self._documents)

    def queries(self) -> Iterator[Query]:
        """First sentences, under the id of their document."""
        return iter(self._queries)

    def qrels(self) -> Qrels:
        """The document that a sentence was taken from."""
        return {query.id: {query.id: 1} for query in self._queries}

    def document_count(self) -> int:
        """How many documents there are."""
        return len(self._documents)

    def fingerprint(self) -> str:
        """Hash of the whole collection."""
        return f"weak-{self._fingerprint}"


def run_demo(output: Path, ask: str | None = None) -> None:
    """Do what is not done yet, print the table, answer a question.

    Args:
        output: folder for lists, model, runs, log and plot.
        ask: a question to answer; None answers an example.
    """
    from rerank.models.weights import find_model

    start = time.perf_counter()
    find_model(ENCODER)  # before any work: without it nothing can be trained
    demo = DemoCollection()
    _check(output, demo)
    if ask is not None and (output / "table.txt").is_file():
        print(answer(ask, demo, output))
        return
    log.info("1. BM25: %d docstrings, %d questions", demo.document_count(), len(list(demo.queries())))
    lists = _lists(demo, output / "lists")
    from rerank.training.fit import fit

    log.info("2. warm-up: %d first sentences of docstrings against the rest of them", WEAK_QUERIES)
    _lists(WeakCollection(demo, WEAK_QUERIES, SEED), output / "weak-lists")
    weak = ListsData(str(output / "weak-lists"), validation_share=0)
    sampler = PositivesNegatives(positives=1, negatives=7)
    warm = fit(_config(ENCODER, weak, sampler, epochs=1), output / "warm-up")

    log.info("3. SmoothI-nDCG on the questions, %d-fold cross-validation", FOLDS)
    for fold in range(1, FOLDS + 1):
        data = FoldsData(str(output / "lists"), fold, FOLDS, validation=False, depth=DEPTH)
        sampler = PositivesNegatives(positives=3, negatives=9)
        fit(_config(str(warm.folder / "best"), data, sampler, epochs=2), output / f"fold-{fold}")
    _runs(lists, output)

    log.info("4. the held-out questions of all folds, against BM25")
    print(_table(output))
    _plot(output / "training.png", [output / "warm-up", *(output / f"fold-{fold}" for fold in range(1, FOLDS + 1))])
    seconds = time.perf_counter() - start
    log.info("%s: runs/*.trec, table.txt, training.png, fold-*/best (models); %.0f s", output, seconds)
    question = ask or HELD_OUT
    print(f"{question}\n")
    print(answer(question, demo, output))
    if ask is None:
        print(f'\nAsk your own: rerank demo --output {output} --ask "..."')


def answer(question: str, demo: Collection, output: Path, count: int = 5) -> str:
    """The best documents for a question: BM25's candidates, reranked by the model of the first fold and BM25."""
    from rerank.models.text.cross_encoder import CrossEncoder
    from rerank.retrieval.fuse import interpolate

    found = BM25().search(build_index(demo), [Query("question", question)], depth=DEPTH, progress=False)
    candidates = [scored.id for scored in found["question"]]
    if not candidates:
        return "BM25 finds no docstring with any of these words."
    texts = {document.id: document.text for document in demo.documents()}
    model = CrossEncoder(str(output / "fold-1" / "best"))
    scores = model.predict([(question, texts[name]) for name in candidates])
    run = {"question": [Scored(name, float(score)) for name, score in zip(candidates, scores, strict=True)]}
    best = interpolate(run, found, WEIGHT)["question"][:count]
    lines = []
    for rank, scored in enumerate(best, start=1):
        first = summary(Document(scored.id, texts[scored.id]))[0]
        lines.append(f"  {rank}. {scored.id:<36} {first[:90]}")
    return "\n".join(lines)


def _config(name: str, data: Data, sampler: Sampler, epochs: int) -> TrainConfig:
    """The cross-encoder and the loss of both trainings.

    Args:
        name: the model to start from.
        data: the lists.
        sampler: what of a list a step sees.
        epochs: passes over the training lists.
    """
    from rerank.losses import DirectMetric
    from rerank.models.text.cross_encoder import CrossEncoder
    from rerank.relaxations import SmoothI
    from rerank.training.config import Optimization, TrainConfig

    return TrainConfig(
        data=data,
        model=CrossEncoder(name, **MODEL),
        loss=DirectMetric("nDCG(dcg='exp-log2')", SmoothI()),
        sampler=sampler,
        optimization=Optimization(encoder_lr=5e-5, head_lr=1e-3),
        epochs=epochs,
        batch_size=4,
        seed=SEED,
        measures=MEASURES,
    )


def _check(output: Path, demo: Collection) -> None:
    """Refuse a folder that holds something else, or the demo of another Python."""
    manifest = output / "lists" / "manifest.json"
    if manifest.is_file():
        if json.loads(manifest.read_text())["collection"]["fingerprint"] != demo.fingerprint():
            raise UserError(f"output: {output} holds the demo of another Python; name another folder")
    elif output.exists() and any(not file.name.startswith(".") for file in output.iterdir()):
        raise UserError(f"output: {output} exists and is not a demo; name another folder")


def _lists(collection: Collection, folder: Path) -> Lists:
    if (folder / "manifest.json").is_file():
        return Lists.open(folder)
    model = BM25()
    run = model.search(build_index(collection), collection.queries(), depth=DEPTH)
    return build_lists(collection, run, folder, depth=DEPTH, retriever={"bm25": vars(model)})


def _runs(lists: Lists, output: Path) -> None:
    """Pool the folds: each question is ranked by the model that has not seen it."""
    from rerank.retrieval.fuse import interpolate

    if (output / "runs").exists():
        return
    pooled: dict[str, Sequence[Scored]] = {}
    for fold in range(1, FOLDS + 1):
        pooled |= read_run(output / f"fold-{fold}" / "test.trec")
    first = lists.run()
    with atomic_folder(output / "runs") as folder:
        write_run(folder / "bm25.trec", first)
        write_run(folder / "reranked.trec", {query: pooled.get(query, []) for query in first}, tag="reranked")
        write_run(folder / "with-bm25.trec", interpolate(pooled, first, WEIGHT), tag="with-bm25")


def _table(output: Path) -> str:
    """Measures of the three runs with tests against BM25; kept as table.txt and table.json."""
    from rerank.evaluation.compare import compare_runs
    from rerank.evaluation.render import text

    names = {"BM25": "bm25", "SmoothI-nDCG": "reranked", "SmoothI-nDCG + BM25": "with-bm25"}
    runs = [f"{name}={output / 'runs' / file}.trec" for name, file in names.items()]
    comparison = compare_runs(str(output / "lists" / "qrels.trec"), runs, MEASURES, "BM25")
    with atomic_write(output / "table.txt") as file:
        file.write(text(comparison))
    return text(comparison, bold=sys.stdout.isatty())


def _plot(path: Path, runs: list[Path]) -> None:
    """The loss over the steps of each run: each step's value, and a running mean over 10 steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for number, run in enumerate(runs):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses = np.array([line["loss"] for line in lines if "loss" in line])
        colour = f"C{number}"
        axes.plot(np.arange(1, len(losses) + 1), losses, color=colour, alpha=0.25, linewidth=1)
        window = min(10, len(losses))
        smooth = np.convolve(losses, np.ones(window) / window, mode="valid")
        axes.plot(np.arange(window, len(losses) + 1), smooth, color=colour, label=run.name)
    axes.set(xlabel="step (4 lists)", ylabel="1 - SmoothI-nDCG", title="Training loss, mean of the last 10 steps")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
