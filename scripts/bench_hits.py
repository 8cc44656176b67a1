"""Seconds and memory of reading lists of hits into a lists folder: ``python scripts/bench_hits.py [HITS]``.

The processor's own seconds (user and system) are given beside: they differ where something else is running.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from rerank.batched import batched

WORDS = [f"word{n}" for n in range(5000)]
READ = """
import re, sys
from rerank.collections import open_collection
from rerank.lists.hits import lists_of_hits
lists = lists_of_hits(open_collection("hits:" + sys.argv[1]), sys.argv[2])
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())  # ru_maxrss knows the parent's, too
print(lists.size, int(peak[1]) / 1024)
"""


def rows(queries: int) -> Iterator[list[dict[str, object]]]:
    """Lists of 100 hits, each query's rows; a fifth as many documents as hits, texts of 40 words."""
    rng = np.random.default_rng(0)
    for query in range(queries):
        documents = rng.choice(queries * 20, 100, replace=False)
        scores = np.sort(rng.random((100, 2)), axis=0)[::-1].tolist()
        yield [
            {
                "query_id": f"q{query}",
                "query": f"what is {WORDS[query % 5000]}",
                "doc_id": f"d{document}",
                "text": " ".join(WORDS[(document * 7 + n) % 5000] for n in range(40)),
                "score": score,
                "dense": dense,
            }
            for document, (score, dense) in zip(documents.tolist(), scores, strict=True)
        ]


def main() -> None:
    hits = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "hits.jsonl").open("w") as file:
            for ranked in rows(hits // 100):
                file.writelines(json.dumps(row) + "\n" for row in ranked)
        with ParquetWriter(folder / "hits.parquet", pa.Table.from_pylist(next(rows(hits // 100))).schema) as writer:
            for some in batched(rows(hits // 100), 1000):
                writer.write_table(pa.Table.from_pylist([row for ranked in some for row in ranked]))
        for path in ("hits.jsonl", "hits.parquet"):
            start, busy = time.perf_counter(), os.times()
            command = [sys.executable, "-c", READ, str(folder / path), str(folder / f"{path}.lists")]
            pairs, memory = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            seconds, now = time.perf_counter() - start, os.times()
            used = now.children_user + now.children_system - busy.children_user - busy.children_system
            each = f"{used:.1f} s of the processor, {1e6 * used / int(pairs):.1f} us a hit"
            print(f"{path}: {int(pairs):,} hits, {seconds:.1f} s ({each}), {float(memory):.0f} MB at the most")


if __name__ == "__main__":
    main()
