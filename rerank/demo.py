"""``rerank demo``: search the Python standard library, from BM25 to a table with p-values, on a laptop."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rerank.collections import Collection, Document, Query
from rerank.collections.demo import DemoCollection, summary
from rerank.errors import UserError
from rerank.lists.build import build_lists
from rerank.lists.data import Data, ListsData
from rerank.lists.folds import FoldsData
from rerank.lists.sampling import PositivesNegatives, Sampler
from rerank.lists.view import Lists
from rerank.lists.writer import write_qrels
from rerank.progress import working
from rerank.retrieval.bm25 import BM25, build_index
from rerank.retrieval.runs import Run, Scored, read_run, write_run
from rerank.storage.files import atomic_folder, atomic_write
from rerank.tasks.retrieve import retrieve

if TYPE_CHECKING:
    from rerank.evaluation.compare import Comparison
    from rerank.training.config import TrainConfig

log = logging.getLogger("rerank.demo")

ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
FOLDS = 3
HELD_OUT = "cut a string into pieces at a separator"
"""A question of the first fold, whose model has not seen it."""
DEPTH = 50
WEIGHT = 0.5
"""BM25's share in the interpolated run: equal shares, fixed beforehand, so that nothing is tuned on the questions."""
WEAK_QUERIES = "first-sentences:1000"
"""Queries that are looked up; only those whose own docstring BM25 finds teach anything."""
NEGATIVES = 7
WARM_UP = "warm-up"
ANSWERS = "answers.json"
SEED = 42
MEASURES = "nDCG@10 RR"
MODEL: dict[str, Any] = {"query_length": 32, "document_length": 64, "dropout": 0.0}


def run_demo(output: Path, ask: str | None = None, full: bool = False) -> None:
    """Do what is not done yet, print the table, answer a question.

    Two thirds of the questions are trained on, the others tested: a table after a few minutes. ``full`` does that for
    each third, so that every question is tested by a model that has not seen it.
    """
    with _own_words():
        if ask is not None and not full and (output / ANSWERS).is_file():
            print(answer(ask, output))
            return
        _build(output, ask or HELD_OUT, full)
    if ask is None:
        again = "" if str(output) == "demo" else f" --output {output}"
        print(f'\nAsk your own: rerank demo{again} --ask "..."')
        if not full:
            print(f"All {FOLDS} thirds of the questions, each tested in turn: rerank demo{again} --full")


def _build(output: Path, question: str, full: bool) -> None:
    """From the docstrings to a trained model, a table, a plot and an answer."""
    from rerank.models.weights import find_model

    start = time.perf_counter()
    find_model(ENCODER)  # before any work: without it nothing can be trained
    demo = DemoCollection()
    with working("reading the documentation of Python"):
        _check(output, demo)
        documents, questions = demo.document_count(), len(list(demo.queries()))
    log.info("1/4  BM25 looks %d questions up in %d docstrings of Python's standard library.", questions, documents)
    log.info("     It matches words, and keeps the best %d docstrings for each.", DEPTH)
    with working("starting the search engine"):
        index = build_index(demo)
    lists = _lists(demo, output / "lists", index)
    with working("writing down what answers need"):
        _write_answers(demo, index, output)
    log.info("2/4  MiniLM, a small language model, learns to read docstrings: it sees the first sentence of each,")
    log.info("     and picks the text that followed it from %d others.", NEGATIVES)
    if not (output / "weak-lists").is_dir():
        retrieve("demo", queries=WEAK_QUERIES, depth=DEPTH, output=str(output / "weak-lists"))
    with working("importing PyTorch"):
        from rerank.training.fit import fit
    sampler = PositivesNegatives(positives=1, negatives=NEGATIVES)
    warm = fit(
        _config(ENCODER, ListsData(str(output / "weak-lists"), validation_share=0), sampler, 1), output / WARM_UP
    )

    folds = range(1, FOLDS + 1) if full else [1]
    for fold in folds:
        which = f"{fold} of {FOLDS}" if full else "one"
        log.info("3/4  It learns from two thirds of the questions; the loss is the measure itself, nDCG.")
        log.info("     The other third (%s) stays unseen, and is reranked at the end.", which)
        data = FoldsData(str(output / "lists"), fold, FOLDS, validation=False, depth=DEPTH)
        sampler = PositivesNegatives(positives=3, negatives=9)
        fit(_config(str(warm.folder / "best"), data, sampler, 2), output / f"fold-{fold}")
    tested = _runs(lists, output, folds)
    log.info("4/4  The %d questions that were not trained on, BM25 against the model:", tested)
    with working("testing the differences"):
        table = _table(output)
    print(f"\n{table}")
    log.info("The table was there after %.0f s.", time.perf_counter() - start)
    with working("drawing the training loss"):
        _plot(output / "training.png", [output / WARM_UP, *(output / f"fold-{fold}" for fold in folds)])
    log.info("In %s: table.txt, training.png, runs/*.trec, the models fold-*/best, log.txt of each training.", output)
    print(f"\n{question}")
    print(answer(question, output))


@contextmanager
def _own_words() -> Iterator[None]:
    """Of what is logged show what the demo itself says, and warnings; the rest is in each training's ``log.txt``."""
    handlers = logging.getLogger().handlers[:]

    def shown(record: logging.LogRecord) -> bool:
        return record.name == log.name or record.levelno >= logging.WARNING

    for handler in handlers:
        handler.addFilter(shown)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(shown)


def _write_answers(demo: Collection, index: Path, output: Path) -> None:
    """Keep the docstrings and where their index is, so that an answer need not collect them again."""
    if not (output / ANSWERS).is_file():
        texts = {document.id: document.text for document in demo.documents()}
        with atomic_write(output / ANSWERS) as file:
            json.dump({"index": str(index.resolve()), "texts": texts}, file)


def answer(question: str, output: Path, count: int = 5) -> str:
    """The best documents for a question: BM25's candidates, reranked by the model of the first fold and BM25.

    Java searches while Python imports PyTorch and Transformers. Importing takes a fifth less without the garbage
    collector, which would look through all that is imported again and again.
    """
    import gc
    from concurrent.futures import ThreadPoolExecutor

    def search() -> tuple[Run, dict[str, str]]:
        known = json.loads((output / ANSWERS).read_text())
        index = Path(known["index"])
        if not index.is_dir():  # RERANK_HOME was emptied, or another user asks
            index = build_index(DemoCollection())
        found = BM25().search(index, [Query("question", question)], depth=DEPTH, progress=False)
        return found, known["texts"]

    with ExitStack() as stack:
        stack.enter_context(working("looking for answers"))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        gc.disable()
        stack.callback(gc.enable)
        searching = pool.submit(search)
        from rerank.models.text.cross_encoder import CrossEncoder
        from rerank.retrieval.fuse import interpolate

        model = CrossEncoder(str(output / "fold-1" / "best"))
        found, texts = searching.result()
        candidates = [scored.id for scored in found["question"]]
        if not candidates:
            return "BM25 finds no docstring with any of these words."
        scores = model.predict([(question, texts[name]) for name in candidates])
    run = {"question": [Scored(name, float(score)) for name, score in zip(candidates, scores, strict=True)]}
    best = interpolate(run, found, WEIGHT)["question"][:count]
    lines = []
    for rank, scored in enumerate(best, start=1):
        first = summary(Document(scored.id, texts[scored.id]))[0]
        lines.append(f"  {rank}. {scored.id:<36} {first[:90]}")
    return "\n".join(lines)


def _config(name: str, data: Data, sampler: Sampler, epochs: int) -> TrainConfig:
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


def _lists(collection: Collection, folder: Path, index: Path) -> Lists:
    if (folder / "manifest.json").is_file():
        return Lists.open(folder)
    model = BM25()
    run = model.search(index, collection.queries(), depth=DEPTH)
    return build_lists(collection, run, folder, depth=DEPTH, retriever={"bm25": vars(model)})


def _runs(lists: Lists, output: Path, folds: Iterable[int]) -> int:
    """Pool the folds: each question is ranked by the model that has not seen it; returns how many there are."""
    from rerank.retrieval.fuse import interpolate

    pooled: dict[str, Sequence[Scored]] = {}
    for fold in folds:
        pooled |= read_run(output / f"fold-{fold}" / "test.trec")
    assert lists.qrels is not None
    splits = [FoldsData(str(output / "lists"), fold, FOLDS, validation=False).splits(SEED) for fold in folds]
    unseen = {query for split in splits if split.test for query in split.test.query_ids}
    first = {query: ranked for query, ranked in lists.run().items() if query in unseen}
    with atomic_folder(output / "runs", replace=True) as folder:
        write_qrels(folder / "qrels.trec", {query: lists.qrels[query] for query in first})
        write_run(folder / "bm25.trec", first)
        write_run(folder / "reranked.trec", {query: pooled.get(query, []) for query in first}, tag="reranked")
        write_run(folder / "with-bm25.trec", interpolate(pooled, first, WEIGHT), tag="with-bm25")
    return len(first)


def _table(output: Path) -> str:
    """Measures of the three runs with tests against BM25; kept as table.txt."""
    from rerank.evaluation.compare import compare_runs
    from rerank.evaluation.render import text

    names = {"BM25": "bm25", "MiniLM": "reranked", "MiniLM + BM25": "with-bm25"}
    runs = [f"{name}={output / 'runs' / file}.trec" for name, file in names.items()]
    comparison = compare_runs(str(output / "runs" / "qrels.trec"), runs, MEASURES, "BM25", ["t-test"])
    with atomic_write(output / "table.txt") as file:
        file.write(text(comparison))
    return f"{text(comparison, bold=sys.stdout.isatty())}\n{_in_words(comparison)}"


def _in_words(comparison: Comparison) -> str:
    """What the table says of the last run's nDCG@10, in a sentence."""
    measure, run = MEASURES.split()[0], list(comparison.tables)[-1]
    ours, theirs = (comparison.tables[name].mean[measure] for name in (run, "BM25"))
    low, high = comparison.differences[run, measure].interval
    verdict = "better" if low > 0 else "worse" if high < 0 else "too close to call"
    return (
        f"In words: {run} has {measure} {ours:.3f}, BM25 {theirs:.3f}; the difference is between {low:+.3f} and "
        f"{high:+.3f} (95 % confidence): {verdict}."
    )


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
