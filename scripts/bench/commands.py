"""Whole commands: how long they take to start, and what several processes gain.

    python scripts/bench/commands.py start [--demo demo]
    python scripts/bench/commands.py processes [--queries 328] [--layers 2]

Each prints a Markdown table: docs/internals/scale.md has that of processes. Both want a machine that does nothing else.

start: ``import rerank``, ``--help`` of every command and, in the folder of a demo that has been run, its answer to a
    question: the median and the range of the wall time of fresh processes, after one that warms the disk.
processes: ``rerank rerank`` by 1, 2 and 4 processes, beside one process of as many threads: the same run, and its time.
    The lists are made, 100 passages of 75 word pieces for each query; 82 queries make one of the parts that processes
    share out. The model has MiniLM's sizes, fewer layers and random weights. Seconds are those of whole commands by the
    clock, the best of ``--rounds``; *start* is the same command with ``--depth 1``, so next to nothing to score. Texts
    are tokenised before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import head, parser_of, rerank_command, row

QUESTION = "run a command and get its output"

WAYS = [(1, 1), (1, 2), (2, 1), (1, 4), (4, 1)]
"""Processes, and threads of each."""

DEPTH, PIECES, QUERY_WORDS = 100, 75, 6
"""Candidates of a query; word pieces of a passage and of a query."""


def start(options: argparse.Namespace, _: Path) -> None:
    """How long it takes until something is there."""
    from rerank.commands.cli import COMMANDS

    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import rerank": [sys.executable, "-c", "import rerank"],
    }
    for words in [["--help"], *([name, "--help"] for name in COMMANDS)]:
        commands[f"rerank {' '.join(words)}"] = rerank_command(*words)
    if options.demo:
        commands["rerank demo --ask"] = rerank_command("demo", "--output", options.demo, "--ask", QUESTION)
    head("", "median, s", "least", "most")
    for name, command in commands.items():
        times = [seconds_of(command) for _ in range(options.rounds + 1)][1:]
        row(f"`{name}`", *(f"{of(times):.2f}" for of in (statistics.median, min, max)))


def seconds_of(command: list[str], **environment: str) -> float:
    """How long a command takes by the clock."""
    started = time.perf_counter()
    done = subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(done.stderr)
    return time.perf_counter() - started


def processes(options: argparse.Namespace, work: Path) -> None:
    """The same run by several processes."""
    from models import minilm_tokenizer, random_model

    from rerank.collections import open_collection
    from rerank.lists.hits import lists_of_hits
    from rerank.models.load import load_model

    model = random_model("MiniLM-L6", work / "model", minilm_tokenizer(), num_hidden_layers=options.layers)
    write_hits(work / "hits.parquet", vocabulary(model), 10 * options.queries, options.queries)
    lists = lists_of_hits(open_collection(f"hits:{work / 'hits.parquet'}"), work / "lists", depth=DEPTH)
    load_model(Path(model), mix=False).inputs(lists)  # tokenises
    head("processes", "threads of each", "seconds", "of these, start", "pairs/s without start", "the same run")
    first = b""
    for count, threads in WAYS:
        output = work / f"{count}-{threads}.trec"
        words = rerank_command("rerank", "--model", model, "--lists", work / "lists", "--output")
        if count > 1:
            launch = ["torch.distributed.run", f"--nproc_per_node={count}", "--standalone", "-m"]
            words = [*words[:2], *launch, *words[2:]]
        best, starting = (
            min(seconds_of([*words, str(path), *more], OMP_NUM_THREADS=str(threads)) for _ in range(options.rounds))
            for path, more in ((output, []), (work / "start.trec", ["--depth", "1"]))
        )
        run = output.read_bytes()
        same, first = run == (first or run), first or run
        rate = lists.size / (best - starting)
        row(count, threads, f"{best:.1f}", f"{starting:.1f}", f"{rate:.0f}", "yes" if same else "no")


def vocabulary(model: str) -> list[str]:
    """Words that are a word piece each."""
    from transformers import AutoTokenizer

    known = AutoTokenizer.from_pretrained(model).get_vocab()
    return sorted(word for word in known if word.isascii() and word.isalpha() and word.islower())


def write_hits(path: Path, words: list[str], passages: int, queries: int) -> None:
    """A Parquet file of lists with their texts, as a search engine's export has it."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    rng = np.random.default_rng(passages)
    lengths = np.maximum(rng.poisson(PIECES, passages), 1)
    texts = [" ".join(rng.choice(words, size)) for size in lengths]
    schema = pa.schema(
        [(name, pa.string()) for name in ("query_id", "query", "doc_id", "text")]
        + [("score", pa.float32()), ("grade", pa.int16())]
    )
    depth = min(DEPTH, passages)
    with ParquetWriter(path, schema) as writer:
        for query in range(queries):
            chosen = rng.choice(passages, depth, replace=False)
            query_text = " ".join(rng.choice(words, QUERY_WORDS))
            columns = {
                "query_id": [str(query)] * depth,
                "query": [query_text] * depth,
                "doc_id": [str(i) for i in chosen],
                "text": [texts[i] for i in chosen],
                "score": np.sort(rng.random(depth).astype(np.float32))[::-1],
                "grade": (np.arange(depth) == rng.integers(8)).astype(np.int16),
            }
            writer.write_table(pa.table(columns, schema=schema))


def main() -> None:
    """Measure what was asked for."""
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["start", "processes"])
    parser.add_argument("--rounds", type=int, help="start: by default 5; processes: 1")
    parser.add_argument("--demo", help="start: folder of a demo, to time an answer")
    parser.add_argument("--queries", type=int, default=328, help="processes")
    parser.add_argument("--layers", type=int, default=2, help="processes")
    parser.add_argument("--folder", help="where to work; by default the folder of temporary files")
    options = parser.parse_args()
    options.rounds = options.rounds or (5 if options.what == "start" else 1)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        globals()[options.what](options, Path(folder))


if __name__ == "__main__":
    main()
