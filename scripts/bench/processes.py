"""``rerank rerank`` by 1, 2 and 4 processes, beside one process of as many threads: the same run, and its time.

    python scripts/bench/processes.py [--queries 328] [--layers 2]

The lists are made, 100 passages of 75 word pieces for each query; 82 queries make one of the parts that processes share
out. The model is MiniLM with fewer layers and a random last one. Seconds are those of whole commands by the clock, the
better of ``--rounds``; *start* is the same command with ``--depth 1``, so next to nothing to score. Texts are tokenised
before. Wants a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cost_model import DEPTH, vocabulary, write_hits

from rerank.collections import open_collection
from rerank.lists.hits import lists_of_hits
from rerank.models.load import load_model
from rerank.models.weights import find_model

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
WAYS = [(1, 1), (1, 2), (2, 1), (1, 4), (4, 1)]
"""Processes, and threads of each."""


def make_model(folder: Path, layers: int) -> None:
    """The first layers of MiniLM as a cross-encoder."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    found = find_model(MINILM)
    model = AutoModelForSequenceClassification.from_pretrained(found, num_labels=1, num_hidden_layers=layers)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(found).save_pretrained(folder)


def seconds(processes: int, threads: int, words: list[str]) -> float:
    """How long a command takes."""
    launch = ["-m", "torch.distributed.run", f"--nproc_per_node={processes}", "--standalone"] if processes > 1 else []
    started = time.perf_counter()
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, *launch, "-m", "rerank.commands.cli", "rerank", *words]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=328)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        make_model(place / "model", options.layers)
        write_hits(place / "hits.parquet", vocabulary(str(place / "model")), 10 * options.queries, options.queries)
        lists = lists_of_hits(open_collection(f"hits:{place / 'hits.parquet'}"), place / "lists", depth=DEPTH)
        load_model(place / "model").inputs(lists)
        print("| processes | threads of each | seconds | of these, start | pairs/s without start | the same run |")
        print("|---:|---:|---:|---:|---:|---|")
        first = b""
        for processes, threads in WAYS:
            output = place / f"{processes}-{threads}.trec"
            words = ["--model", str(place / "model"), "--lists", str(lists.store), "--output"]
            best, start = (
                min(seconds(processes, threads, [*words, str(path), *more]) for _ in range(options.rounds))
                for path, more in ((output, []), (place / "start.trec", ["--depth", "1"]))
            )
            run = output.read_bytes()
            same, first = run == (first or run), first or run
            rate = lists.size / (best - start)
            print(
                f"| {processes} | {threads} | {best:.1f} | {start:.1f} | {rate:.0f} | {'yes' if same else 'no'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
