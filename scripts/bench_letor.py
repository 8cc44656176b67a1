"""Reading feature files: this package beside scikit-learn's reader, on made files shaped like MSLR-WEB30K.

    python scripts/bench_letor.py [--rows 60000] [--threads 1 2] [--repeats 3]

prints Markdown. The file has 136 features a row, a third of them counts, a third decimals, a third mostly 0, in lists
of 120 rows on average. All contenders read the same file in turns; a row gives the best of them, since whatever else
the machine does only ever adds. "To lists" is all that a user waits for: parsing, and writing the Arrow lists.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from rerank.features.parse import parse_file, store_features

FEATURES = 136
WEB30K_ROWS = 2_270_296  # training rows of fold 1


def make_file(path: Path, rows: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    with path.open("w") as file:
        query = 0
        for start in range(0, rows, 10_000):
            count = min(10_000, rows - start)
            columns: list[list[str]] = []
            for feature in range(FEATURES):
                values = rng.lognormal(sigma=2, size=count) * 10
                if feature % 3 == 0:
                    columns.append([str(int(v)) for v in values])
                elif feature % 3 == 1:
                    columns.append([f"{v:.6f}" for v in values])
                else:
                    columns.append([f"{v:.6g}" if v > 10 else "0" for v in values])
            for i, values_of_row in enumerate(zip(*columns, strict=True)):
                query += i % 120 == 0
                cells = " ".join(f"{j}:{value}" for j, value in enumerate(values_of_row, start=1))
                file.write(f"{rng.integers(0, 5)} qid:{query} {cells} \n")


def parse(path: Path, threads: int) -> None:
    for block in parse_file(path, threads=threads):
        assert block.features.shape[1] == FEATURES


def in_child(work: Callable[[], object]) -> tuple[float, float, float]:
    """In a process of its own: seconds, seconds of the processors, the most memory (MiB) beyond what it began with."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start, busy = time.perf_counter(), time.process_time()
        work()
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        os.write(write, f"{seconds} {busy} {grown / 1024}".encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        answer = file.read()
    os.waitpid(child, 0)
    if not answer:
        raise RuntimeError("a contender failed, see above")
    seconds, busy, grown = map(float, answer.split())
    return seconds, busy, grown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.txt"
        make_file(path, arguments.rows)

        def store() -> None:
            store_features(path, Path(folder) / f"lists-{time.monotonic_ns()}", "")

        contenders: dict[str, Callable[[], object]] = {
            "scikit-learn": lambda: load_svmlight_file(str(path), query_id=True, dtype=np.float32)
        }
        for threads in dict.fromkeys(arguments.threads):
            contenders[f"parsing, {threads} thread(s)"] = lambda threads=threads: parse(path, threads)
        contenders[f"to lists, {os.cpu_count()} thread(s)"] = store
        results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in contenders}
        for _ in range(arguments.repeats):
            for name, work in contenders.items():
                results[name].append(in_child(work))
        size = path.stat().st_size / 1e6
    print(f"{arguments.rows} rows x {FEATURES} features, {size:.0f} MB; best of {arguments.repeats}\n")
    print("| | s | of all processors | MB/s | rows/s | times scikit-learn | a WEB30K fold's training file | memory |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    theirs = min(results["scikit-learn"])[0]
    for name, runs in results.items():
        seconds, busy, memory = min(runs)[0], min(run[1] for run in runs), max(run[2] for run in runs)
        rate = arguments.rows / seconds
        print(
            f"| {name} | {seconds:.2f} | {busy:.2f} | {size / seconds:.0f} | {rate:.0f} | {theirs / seconds:.1f} "
            f"| {WEB30K_ROWS / rate:.0f} s | {memory:.0f} MiB |"
        )


if __name__ == "__main__":
    main()
