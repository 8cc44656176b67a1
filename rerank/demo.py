"""``rerank demo``: search the Python standard library, from BM25 to a table with p-values, on a laptop."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rerank.collections import Collection, Document, Query
from rerank.collections.demo import DemoCollection, summary
from rerank.errors import UserError
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
    from rerank.evaluation.compare import Comparison, Difference
    from rerank.training.config import TrainConfig

log = logging.getLogger("rerank.demo")

ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
FOLDS = 3
DEPTH = 50
RANKERS = {
    "BM25": {"bm25": 1.0},
    "cosines (untrained)": {"cosine": 1.0},
    "BM25 + cosines (untrained)": {"bm25": 0.5, "cosine": 0.5},
    "trained MiniLM": {"text": 1.0},
    "trained + BM25 + cosines": {"text": 0.5, "bm25": 0.25, "cosine": 0.25},
}
"""What is compared, and what each adds up, by shares that were fixed beforehand: none is tuned on the questions."""

FILES = dict(zip(RANKERS, ("bm25", "cosines", "fused", "reranked", "mixed"), strict=True))
WEAK_QUERIES = "first-sentences:1000"
"""Queries that are looked up; only those whose own docstring BM25 finds teach anything."""

NEGATIVES = 7
WARM_UP = "warm-up"
ANSWERS = "answers.json"
SEED = 42
MEASURES = "nDCG@10 RR"
MODEL: dict[str, Any] = {"query_length": 32, "document_length": 64, "dropout": 0.0}


def run_demo(output: Path, ask: str | None = None) -> None:
    """Do what is not done yet, print the table (of the third of the questions that is held out), answer a question."""
    with _own_words():
        if ask is None or not (output / ANSWERS).is_file():
            _build(output)
        if ask is not None:
            print(answer(ask, output))
            return
    place = "" if str(output) == "demo" else f" --output {output}"
    print(f'\nNext:  rerank demo{place} --ask "run a command and get its output"')
    print(f"       rerank lists {output / 'lists'}     # what BM25 missed, and what each ranking could reach")
    print(f"P-values and effect sizes: {output / 'table.txt'}. Your own data: docs/start.md")


def _build(output: Path) -> None:
    """From the docstrings to a trained model and a table."""
    from rerank.models.weights import find_model

    start = time.perf_counter()
    find_model(ENCODER)  # before any work: without it nothing can be trained
    demo = DemoCollection()
    with working("reading the documentation of Python"):
        _check(output, demo)
        documents, questions = demo.document_count(), len(list(demo.queries()))
    with working("starting the search engine"):
        index = build_index(demo)
    if not (output / "lists").is_dir():
        retrieve("demo", depth=DEPTH, output=str(output / "lists"))
    lists = Lists.open(output / "lists")
    data = FoldsData(str(output / "lists"), 1, FOLDS, validation=False, depth=DEPTH)
    held_out = data.splits(SEED).test
    assert held_out is not None
    held_out = lists.select(np.isin(lists.query_ids, held_out.query_ids))
    tested = len(held_out)
    log.info(
        "Python's documentation: %s docstrings, %d questions; %d to learn from, the others held out.",
        *(f"{documents:,}", questions, questions - tested),
    )
    answered = sum(bool((grades > 0).any()) for grades in np.split(held_out.grades, np.cumsum(held_out.lengths)[:-1]))
    log.info("[1/3] BM25, which matches words, takes %d docstrings for each question:", DEPTH)
    log.info("      an answer is among them for %d of the %d. Reranking cannot find the others.", answered, tested)
    log.info("[2/3] MiniLM, a small language model, learns to pick the text that followed a first sentence from")
    log.info("      %d others (no judgment needed), then from the judged questions: 3 minutes on two cores", NEGATIVES)
    log.info("      with bf16, 20 without.")
    if not (output / "weak-lists").is_dir():
        retrieve("demo", queries=WEAK_QUERIES, depth=DEPTH, output=str(output / "weak-lists"))
    with working("importing PyTorch"):
        from rerank.training.fit import fit
    sampler = PositivesNegatives(positives=1, negatives=NEGATIVES)
    weak = ListsData(str(output / "weak-lists"), validation_share=0)
    warm = fit(_config(ENCODER, weak, sampler, 1), output / WARM_UP)
    sampler = PositivesNegatives(positives=3, negatives=9)
    fit(_config(str(warm.folder / "best"), data, sampler, 2), output / "fold-1")
    log.info("[3/3] The %d held-out questions, also by the cosines of MiniLM as published:", tested)
    runs = _runs(held_out, output)
    with working("testing the differences"):
        shown, best = _compared(held_out, runs, output)
    texts = {document.id: document.text for document in demo.documents()}
    with atomic_write(output / ANSWERS) as file:
        json.dump({"index": str(index.resolve()), "texts": texts, "ranker": best}, file)
    print(f"\n{shown}")
    log.info("\nThis took %.0f s.", time.perf_counter() - start)


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


def answer(question: str, output: Path, count: int = 5) -> str:
    """The best documents for a question: BM25's candidates, reranked by what the table favours.

    Java searches while Python imports PyTorch and Transformers. Importing takes a fifth less without the garbage
    collector, which would look through all that is imported again and again.
    """
    import gc
    from concurrent.futures import ThreadPoolExecutor

    known = json.loads((output / ANSWERS).read_text())
    shares = RANKERS[known["ranker"]]

    def search() -> Run:
        index = Path(known["index"])
        if not index.is_dir():  # RERANK_HOME was emptied, or another user asks
            _check(output, DemoCollection())
            index = build_index(DemoCollection())
        return BM25().search(index, [Query("question", question)], depth=DEPTH, progress=False)

    with ExitStack() as stack:
        stack.enter_context(working("looking for answers"))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        gc.disable()
        stack.callback(gc.enable)
        searching = pool.submit(search)
        from rerank.models.text.cosines import Embedder, cosines_of
        from rerank.models.text.cross_encoder import CrossEncoder
        from rerank.retrieval.fuse import fuse

        model = CrossEncoder(str(output / "fold-1" / "best")) if "text" in shares else None
        encoder = Embedder(ENCODER) if "cosine" in shares else None
        found = searching.result()
        candidates = [scored.id for scored in found["question"]]
        if not candidates:
            return "BM25 retrieves no docstring with any of these words."
        texts = [known["texts"][name] for name in candidates]
        scores = {"bm25": [scored.score for scored in found["question"]]}
        if model:
            scores["text"] = model.predict([(question, text) for text in texts]).tolist()
        if encoder:
            scores["cosine"] = cosines_of(question, texts, encoder).tolist()
    runs = [{"question": list(map(Scored, candidates, scores[name]))} for name in shares]
    best = fuse(runs, list(shares.values()))["question"][:count]
    lines = [f"by the ranker that the table favours: {known['ranker']}"]
    for rank, scored in enumerate(best, start=1):
        first = summary(Document(scored.id, known["texts"][scored.id]))
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


def _runs(lists: Lists, output: Path) -> dict[str, Run]:
    """The held-out questions by each ranker."""
    from rerank.models.text.cosines import Embedder, cosines
    from rerank.retrieval.fuse import fuse

    text = read_run(output / "fold-1" / "test.trec")
    with working("comparing vectors"):
        cosine = lists.run(cosines(lists, Embedder(ENCODER)))
    reranked = {query: text.get(query, []) for query in lists.query_ids}
    parts: dict[str, Run] = {"bm25": lists.run(), "text": reranked, "cosine": cosine}
    runs: dict[str, Run] = {}
    assert lists.qrels is not None
    with atomic_folder(output / "runs", replace=True) as folder:
        write_qrels(folder / "qrels.trec", {query: lists.qrels[query] for query in lists.query_ids})
        for name, shares in RANKERS.items():
            added = [parts[part] for part in shares]
            runs[name] = added[0] if len(added) == 1 else fuse(added, list(shares.values()))
            write_run(folder / f"{FILES[name]}.trec", runs[name], tag=FILES[name])
    return runs


def _compared(lists: Lists, runs: dict[str, Run], output: Path) -> tuple[str, str]:
    """What is shown of the runs, counts before measures, and the name of the best; tests are in table.txt."""
    from rerank.evaluation.compare import compare_runs
    from rerank.evaluation.render import text

    qrels = {query: lists.qrels[query] for query in lists.query_ids} if lists.qrels is not None else {}
    comparison = compare_runs(lists, runs, MEASURES, "BM25", ["t-test"])
    with atomic_write(output / "table.txt") as file:
        file.write(text(comparison))
    measure = MEASURES.split()[0]
    ideal = {}
    for query, hits in runs["BM25"].items():
        graded = [Scored(hit.id, float(qrels[query].get(hit.id, 0))) for hit in hits]
        ideal[query] = sorted(graded, key=lambda hit: -hit.score)
    rows = runs | {"best possible order": ideal}
    means = {name: table.mean for name, table in compare_runs(lists, rows, MEASURES).tables.items()}
    lines = [f"{'':<29}answer first  in the top 10  {'  '.join(f'{name:>7}' for name in MEASURES.split())}"]
    for name, run in rows.items():
        tops = [[qrels[query].get(hit.id, 0) > 0 for hit in hits[:10]] for query, hits in run.items()]
        first, ten = sum(any(top[:1]) for top in tops), sum(map(any, tops))
        numbers = "  ".join(f"{means[name][one]:7.3f}" for one in MEASURES.split())
        lines.append(f"{name:<29}{first:>4} of {len(qrels):<5}{ten:>6} of {len(qrels):<5}{numbers}")
    by_mean = sorted((name for name in RANKERS if name != "BM25"), key=lambda name: -means[name][measure])
    trained = next(name for name in by_mean if "text" in RANKERS[name])
    untrained = next(name for name in by_mean if "text" not in RANKERS[name])
    best = by_mean[0]
    gap = compare_runs(lists, {name: runs[name] for name in (untrained, trained)}, measure, untrained, ["t-test"])
    unjudged = np.mean([hit.id not in qrels[query] for query, hits in runs[best].items() for hit in hits[:10]])
    lines += [
        "",
        f"{best} against BM25:\n  {_in_words(comparison.differences[best, measure], measure)}",
        f"Does training pay? {trained} against {untrained}:\n  {_in_words(gap.differences[trained, measure], measure)}",
        f"{unjudged:.0%} of the top ten was never judged and counts as wrong, so all numbers are low.",
        "",
        *_examples(lists, runs, comparison, best),
    ]
    return "\n".join(lines), best


def _in_words(difference: Difference, measure: str) -> str:
    """A difference, how sure it is, and what that means."""
    low, high = difference.interval
    verdict = "better" if low > 0 else "worse" if high < 0 else "too close to call"
    return f"{difference.mean:+.3f} {measure}, 95 % interval [{low:+.3f}, {high:+.3f}]: {verdict}."


def _examples(lists: Lists, runs: dict[str, Run], comparison: Comparison, best: str) -> list[str]:
    """The questions with the largest gain and the largest loss, with the first documents of both rankings."""
    measure = MEASURES.split()[0]
    ours, theirs = (comparison.tables[name] for name in (best, "BM25"))
    gains = ours[measure] - theirs[measure]
    texts = dict(zip(lists.query_ids, lists.query_texts, strict=True))
    lines = []
    for what, at in (("gain", int(np.argmax(gains))), ("loss", int(np.argmin(gains)))):
        query = ours.queries[at]
        grades = lists.qrels[query] if lists.qrels is not None else {}
        lines.append(f'The largest {what} ({gains[at]:+.2f}): "{texts[query]}"')
        lines.append(f"       {'BM25':<38}{best} (* is an answer)")
        for rank in range(min(2, len(runs[best][query]))):
            hits = [runs[name][query][rank].id for name in ("BM25", best)]
            one, other = (f"{'*' if grades.get(hit, 0) > 0 else ' '} {hit}" for hit in hits)
            lines.append(f"  {rank + 1}. {one:<38}{other}")
    return lines
