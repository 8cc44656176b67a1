"""``rerank demo``: fine-tune a reranker on Python's own documentation, and compare it with BM25 and MiniLM."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from rerank.collections.base import Query
from rerank.collections.demo import DemoCollection
from rerank.collections.names import read_qrels
from rerank.collections.texts import Texts
from rerank.errors import UserError
from rerank.lists.view import Lists
from rerank.retrieval.bm25 import BM25, build_index
from rerank.retrieval.fuse import fuse
from rerank.storage.files import digest
from rerank.tasks.retrieve import retrieve

log = logging.getLogger("rerank.demo")

ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
TRAIN, TEST = 1600, 400
"""Numbers of questions at most."""

DEPTH = 20
NEGATIVES = 3
MODEL: dict[str, Any] = {"query_length": 40, "document_length": 32, "dropout": 0.0}
COLUMNS = ["bm25", "minilm"]
MEASURES = "nDCG@10 RR@10"
ROWS = (
    "BM25",
    "MiniLM bi-encoder, zero-shot",
    "fusion of both, zero-shot",
    "MiniLM cross-encoder, fine-tuned",
)

Precision = Literal["auto", "bf16", "fp32"]


def run_demo(output: Path, ask: str | None = None, precision: Precision = "auto") -> None:
    """Train and print the table, reusing completed steps; or answer a question."""
    with _only_own_messages():
        if ask is None or not (output / "model" / "best").is_dir():
            _build(output, precision)
        if ask is not None:
            print(answer(ask, output))
            return
    place = "" if str(output) == "demo" else f" --output {output}"
    print(f'\nNext: rerank demo{place} --ask "run a command and get its output"')


def _build(output: Path, precision: Precision) -> None:
    """Retrieve, fine-tune and evaluate."""
    began = time.perf_counter()
    train, test = _lists(output)
    log.info("Which function of Python's standard library does this sentence document?")
    log.info("%d questions to train on; %d about other modules to test on.", len(train), len(test))
    print(f"\n{'':<34}{'nDCG@10':>9}{'RR@10':>9}")
    runs: dict[str, Any] = {}
    _add_row(runs, test, "bm25")
    from rerank import CrossEncoder, Optimization, PositivesNegatives, SmoothINDCG
    from rerank import train as fine_tune
    from rerank.scoring.outputs import add_cosines

    if "minilm" not in test.store.column_names:
        add_cosines(output / "lists", ENCODER, "minilm", precision=precision)
        train, test = _lists(output)
    _add_row(runs, test, "minilm")
    _add_row(runs, test, fuse([test.run(name) for name in COLUMNS]))
    training = fine_tune(
        CrossEncoder(
            ENCODER, **MODEL, residual_columns=COLUMNS, residual_weight=0.5
        ),  # its first ranking is the fusion's
        train,
        SmoothINDCG(),
        output=output / "model",
        validation=None,
        test=test,
        sampler=PositivesNegatives(positives=1, negatives=NEGATIVES),
        optimization=Optimization(encoder_lr=1e-4, head_lr=1e-3),
        batch_size=8,
        precision=precision,
        measures=MEASURES,
    )
    _add_row(runs, test, training.folder / "test.trec")
    print(f"\n{_gains(test, runs)}")
    log.info("\nThis took %.0f s.", time.perf_counter() - began)


def _lists(output: Path) -> tuple[Lists, Lists]:
    """Retrieve candidates of training and test questions, which share neither module nor sentence."""
    folder, demo = output / "lists", DemoCollection()
    asked: dict[bool, list[Query]] = {True: [], False: []}
    for query in demo.queries():
        asked[_is_test(query.id)].append(query)
    sentences = {query.text.partition(": ")[2] for query in asked[True][:TEST]}
    train = [query for query in asked[False] if query.text.partition(": ")[2] not in sentences]
    if not folder.is_dir():
        queries, qrels = dict(train[:TRAIN] + asked[True][:TEST]), read_qrels("demo")
        retrieve(demo, str(folder), depth=DEPTH, queries=queries, qrels={query: qrels[query] for query in queries})
    lists = Lists.open(folder)
    if lists.store.manifest["collection"]["fingerprint"] != demo.fingerprint():
        raise UserError(f"output: {output} has the demo of another version; name another folder")
    test = [_is_test(name) for name in lists.query_ids]
    return lists.select([not one for one in test]), lists.select(test)


def _is_test(name: str) -> bool:
    """Assign a third of the modules to the test; built-in types are one module."""
    import builtins

    module = name.rstrip("?").partition(".")[0]
    return not hasattr(builtins, module) and int(digest("demo", module)[:8], 16) % 3 == 0


def _add_row(runs: dict[str, Any], test: Lists, run: Any) -> None:
    """Evaluate the next run, and print its row of the table."""
    from rerank.evaluation.compare import compare_runs

    name = ROWS[len(runs)]
    runs[name] = run
    means = compare_runs(test, {name: run}, MEASURES).tables[name].mean
    print(f"{name:<34}" + "".join(f"{means[measure]:9.3f}" for measure in MEASURES.split()), flush=True)


def _gains(test: Lists, runs: Mapping[str, Any]) -> str:
    """Say in a sentence what fine-tuning gained over BM25 and over the fusion."""
    from rerank.evaluation.compare import compare_runs

    bm25, _, fusion, ours = ROWS
    measure, said = MEASURES.split()[0], []
    for baseline, name in ((bm25, "BM25"), (fusion, "the fusion")):
        found = compare_runs(test, runs, measure, baseline).differences[ours, measure]
        low, high = found.interval or (found.difference, found.difference)
        said.append(f"{found.difference:+.3f} over {name} (95 % interval {low:+.3f} to {high:+.3f})")
    doubt = "" if low > 0 or high < 0 else " The difference from the fusion is not significant."
    questions = f"on {len(test)} questions about modules not seen in training"
    return f"Fine-tuning changed {measure} by {said[0]} and {said[1]},\n{questions}.{doubt}"


def answer(question: str, output: Path, count: int = 5) -> str:
    """Rank the library's functions for a question: BM25 on names and sentences, then the fine-tuned model."""
    from rerank import CrossEncoder
    from rerank.models.text.cosines import Embedder

    entries = {entry["id"]: entry for entry in DemoCollection().entries()}
    texts = {name: f"{entry['text']}. {entry['sentence']}" for name, entry in entries.items()}
    index = build_index(Texts(texts, {"question": question}, name="demo with sentences"))
    found = BM25().search(index, [Query("question", question)], depth=DEPTH)["question"]
    if not found:
        return "BM25 finds no function with any of these words."
    candidates = [entries[one.id] for one in found]
    sentences = [entry["sentence"] for entry in candidates]
    columns: dict[str, Any] = {"bm25": [one.score for one in found]}
    columns["minilm"] = Embedder(ENCODER).cosines_of(question, sentences)
    model = CrossEncoder.load(output / "model" / "best")
    best = [candidates[one["corpus_id"]] for one in model.rank(question, sentences, columns=columns)[:count]]
    return "\n".join(f"{rank}. {one['call']}\n   {one['sentence']}" for rank, one in enumerate(best, 1))


@contextmanager
def _only_own_messages() -> Iterator[None]:
    """Show warnings and the demo's messages; the log of the training run is in its ``log.txt``."""
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
