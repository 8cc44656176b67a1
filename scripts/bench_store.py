"""Ranked lists of many pairs: what opening, cutting and adding a column cost, in seconds and memory.

    python scripts/bench_store.py [--pairs 75000000] [--depth 150] [--folder DIR]

makes lists of random candidates (ids and short texts for a hundredth of as many documents as pairs), then prints a
Markdown table. Each row is a process of its own. *Own* is the memory that belongs to it alone (anonymous pages) beyond
what it had after its imports; *read* are the mapped pages of files that it touched (their growth in RssFile).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rerank.arrow import write_arrow
from rerank.lists.layout import DOCUMENTS, QUERIES
from rerank.lists.writer import StoreWriter

BLOCK = 1 << 20
STEPS = {
    "open, hashes computed": "lists = Lists.open(folder)",
    "open again": "lists = Lists.open(folder)",
    "open, `top(10)`": "lists = Lists.open(folder).top(10)",
    "open, `select` 100 lists, their grades and scores": (
        "lists = Lists.open(folder).select(np.arange(0, 100 * 37, 37)); lists.grades.sum(); lists.column('bm25').sum()"
    ),
    "open, all grades": "lists = Lists.open(folder); lists.grades.sum()",
    "add a column": (
        "store = Lists.open(folder).store; count = int(store.ends[-1])\n"
        f"store.add_column('new', (np.ones(min({BLOCK}, count - i), np.float32) for i in range(0, count, {BLOCK})))"
    ),
}
CODE = """
import sys, time
import numpy as np
from rerank.lists import Lists

def memory():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return [int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile")]

folder = sys.argv[1]
own, read = memory()
start = time.perf_counter()
{step}
seconds = time.perf_counter() - start
after = memory()
print(f"{{seconds:.3f}} {{after[0] - own:.0f}} {{after[1] - read:.0f}}")
"""


def make(folder: Path, pairs: int, depth: int) -> None:
    """Write the lists."""
    rng = np.random.default_rng(0)
    documents, queries = max(depth, pairs // 100), -(-pairs // depth)

    def texts(kind: str, count: int) -> Iterator[dict[str, list[str]]]:
        for start in range(0, count, BLOCK):
            numbers = range(start, min(start + BLOCK, count))
            yield {f"{kind}_id": [f"{kind}{i}" for i in numbers], "text": [f"the text of {kind} {i}" for i in numbers]}

    write_arrow(folder / "queries.arrow", QUERIES, texts("query", queries))
    write_arrow(folder / "documents.arrow", DOCUMENTS, texts("doc", documents))
    with StoreWriter(folder, {"bm25": ["bm25"]}) as writer:
        for start in range(0, queries, step := max(1, BLOCK // depth)):
            some = min(step, queries - start)
            rows = rng.integers(documents, size=some * depth, dtype=np.int32)
            scores = np.tile(np.arange(depth, 0, -1, dtype=np.float32), some)
            grades = (rng.random(len(rows)) < 0.01).astype(np.int16)
            writer.add(np.full(some, depth), np.zeros(some, np.int32), rows, grades, bm25=scores)
        counts = {"queries": queries, "documents": documents, "pairs": writer.pairs}
        about = {"name": "made", "fingerprint": ""}
        writer.close(collection=about, order="bm25", judgments=None, counts=counts, made={}, retriever={})


def main() -> None:
    """Make the lists, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=75_000_000)
    parser.add_argument("--depth", type=int, default=150)
    parser.add_argument("--folder", type=Path, help="where to make them; a temporary folder by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        start = time.perf_counter()
        make(folder, options.pairs, options.depth)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
        print(f"made in {time.perf_counter() - start:.0f} s, {size:.0f} MB", file=sys.stderr)
        time.sleep(3)  # time stamps of files that have just been written are not relied on
        print(f"| {options.pairs:,} pairs | seconds | own MB | read MB |\n|---|---|---|---|")
        for name, step in STEPS.items():
            words = [sys.executable, "-c", CODE.format(step=step), str(folder)]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
            print(f"| {name} | {' | '.join(done.stdout.split())} |", flush=True)


if __name__ == "__main__":
    main()
