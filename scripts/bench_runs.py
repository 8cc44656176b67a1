"""Runs and hits, read, written and made into lists: seconds and bytes a pair, beside other readers.

    python scripts/bench_runs.py [--pairs 10000000] [--depth 1000] [--folder DIR] [--ranx PYTHON] [--only WORD ...]

makes a run of MS MARCO's shape (ids of passages, scores of six digits) in TREC's format, of MS MARCO's three columns,
and as Parquet, the same as hits with texts of five words, as JSON lines and as Parquet, with a collection of all
passages that there are, and prints a Markdown table. ``--ranx`` names an interpreter that has ranx, which is no
dependency of ours; ``--only`` chooses rows that have one of these words in their names.

Each row is a process of its own. *Held* is the memory that belongs to it alone (anonymous pages) after reading, less
that before; *at most* the same at its highest, asked a hundred times a second. Times are wall-clock, with the
processor's own (user and system) beside: they differ where something else is running.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

PASSAGES = 8_841_823


def make_run(folder: Path, pairs: int, depth: int) -> None:
    """``run.trec``, ``run.tsv``, ``run.trec.gz`` and ``run.parquet``; ``hits.*``; ``docs.tsv`` and ``queries.tsv``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, passages = np.random.default_rng(0), min(PASSAGES, max(pairs, depth))
    schema = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("score", pa.float32())])
    texts = pa.schema([*schema, ("query", pa.string()), ("text", pa.string())])
    with (folder / "docs.tsv").open("w") as file:
        file.writelines(f"{id}\tthe text of passage {id}\n" for id in range(passages))
    with (
        (folder / "queries.tsv").open("w") as queries,
        (folder / "hits.jsonl").open("w") as lines,
        pq.ParquetWriter(folder / "hits.parquet", texts) as hits,
        (folder / "run.trec").open("w") as trec,
        (folder / "run.tsv").open("w") as marco,
        pq.ParquetWriter(folder / "run.parquet", schema) as parquet,
    ):
        batch: list[pa.RecordBatch] = []
        for query in range(-(-pairs // depth)):
            documents = rng.choice(passages, depth, replace=False, shuffle=False).astype(str).tolist()
            scores = -np.sort(-rng.normal(20, 4, depth)).round(6)
            name = str(1_000_000 + query)
            rows = list(enumerate(zip(documents, scores.tolist(), strict=True), 1))
            trec.writelines(f"{name} Q0 {document} {rank} {score:.6f} made\n" for rank, (document, score) in rows)
            marco.writelines(f"{name}\t{document}\t{rank}\n" for rank, (document, _) in rows)
            queries.write(f"{name}\tthe text of query {name}\n")
            said = {"query_id": name, "query": f"the text of query {name}"}
            lines.writelines(
                json.dumps({**said, "doc_id": document, "text": f"the text of passage {document}", "score": score})
                + "\n"
                for _, (document, score) in rows
            )
            columns = [[name] * depth, documents, scores.astype(np.float32)]
            columns += [[said["query"]] * depth, [f"the text of passage {document}" for document in documents]]
            batch.append(pa.record_batch(columns, schema=texts))
            if len(batch) == 100 or query == -(-pairs // depth) - 1:
                table = pa.Table.from_batches(batch)
                parquet.write_table(table.select(schema.names))
                hits.write_table(table)
                batch = []
    import gzip
    import shutil

    with (folder / "run.trec").open("rb") as plain, gzip.open(folder / "run.trec.gz", "wb", 1) as packed:
        shutil.copyfileobj(plain, packed)


def ours(path: str) -> Any:
    from rerank.retrieval.runs import read_run

    return read_run(path)


def query_by_query(path: str) -> Any:
    run = ours(path)
    return [run, sum(len(run[query]) for query in run)]


def written(path: str) -> Any:
    from rerank.retrieval.runs import write_run

    run = ours(path)
    started = time.perf_counter(), time.process_time()
    write_run(Path(path).parent / "written.trec", run)
    return run, started


def as_lists(*words: str) -> Any:
    """Lists of what a file says; all of it stays on disk."""
    from rerank.cli import main as rerank

    assert rerank(["retrieve", *words, "--depth", "1000000", "--overwrite"]) == 0
    return None


def lists_of_run(path: str) -> Any:
    folder = Path(path).parent
    return as_lists("--collection", f"files:{folder}", "--run", path, "--output", str(folder / "lists"))


def lists_of_hits(path: str) -> Any:
    return as_lists("--collection", f"hits:{path}", "--output", str(Path(path).parent / "lists"))


def ranx(path: str) -> Any:
    from ranx import Run

    return Run.from_file(path, kind="trec")


def pandas(path: str) -> Any:
    import pandas as pd

    names = ["query_id", "Q0", "doc_id", "rank", "score", "tag"]
    return pd.read_csv(path, sep=" ", names=names, dtype={"query_id": str, "doc_id": str})


def ir_measures(path: str) -> Any:
    import ir_measures

    return list(ir_measures.read_trec_run(path))


RANX = "ranx `Run.from_file`"
READERS: list[tuple[str, Callable[[str], Any], str]] = [
    ("`read_run`, TREC", ours, "run.trec"),
    ("`read_run`, TREC, .gz", ours, "run.trec.gz"),
    ("`read_run`, MS MARCO", ours, "run.tsv"),
    ("`read_run`, Parquet", ours, "run.parquet"),
    ("`read_run`, and every query's list", query_by_query, "run.trec"),
    ("`write_run` of that", written, "run.trec"),
    ("pandas `read_csv`, TREC", pandas, "run.trec"),
    ("ir_measures `read_trec_run`", ir_measures, "run.trec"),
    (RANX, ranx, "run.trec"),
    ("`rerank retrieve --run`, TREC", lists_of_run, "run.trec"),
    ("`rerank retrieve`, `hits:` JSON lines", lists_of_hits, "hits.jsonl"),
    ("`rerank retrieve`, `hits:` Parquet", lists_of_hits, "hits.parquet"),
]


def own_memory() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) << 10


def measure(reader: Callable[[str], Any], path: str) -> dict[str, float]:
    if reader is ranx:  # what a row imports is not to be counted
        import ranx as _  # noqa: F401
    else:
        import pandas  # noqa: F401
        import pyarrow.csv  # noqa: F401

        import rerank.lists.build
        import rerank.lists.hits
        import rerank.retrieval.tune  # noqa: F401
    before, most, done = own_memory(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.01):
            most = max(most, own_memory())

    thread = threading.Thread(target=watch)
    thread.start()
    started = time.perf_counter(), time.process_time()
    kept = reader(path)
    if isinstance(kept, tuple):
        started = kept[1]
    seconds, busy = time.perf_counter() - started[0], time.process_time() - started[1]
    done.set()
    thread.join()
    held = own_memory() - before
    del kept
    return {"seconds": seconds, "busy": busy, "held": held, "most": max(most - before, held)}


def rows(folder: Path, pairs: int, with_ranx: str | None, only: list[str]) -> Iterable[str]:
    yield "| 10 million pairs | seconds | us a pair | processor's us a pair | bytes a pair held | at most |".replace(
        "10 million", f"{pairs:,}"
    )
    yield "|---|---|---|---|---|---|"
    for number, (name, _, file) in enumerate(READERS):
        if (name == RANX and with_ranx is None) or (only and not any(word in name for word in only)):
            continue
        python = with_ranx if name == RANX and with_ranx is not None else sys.executable
        command = [python, __file__, "--reader", str(number), "--folder", str(folder / file)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = {key: float(value) for key, value in json.loads(done.stdout).items()}
        us = 1e6 / pairs
        cells = [f"{found['seconds']:.1f}", f"{found['seconds'] * us:.2f}", f"{found['busy'] * us:.2f}"]
        yield f"| {name} | {' | '.join(cells)} | {found['held'] / pairs:.0f} | {found['most'] / pairs:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--folder", help="where to make the runs; a temporary folder by default")
    parser.add_argument("--ranx", help="a Python that has ranx")
    parser.add_argument("--only", nargs="*", default=[], help="words of the rows that are wanted")
    parser.add_argument("--reader", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader is not None:
        print(json.dumps(measure(READERS[options.reader][1], options.folder)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        make_run(Path(folder), options.pairs, options.depth)
        for row in rows(Path(folder), options.pairs, options.ranx, options.only):
            print(row, flush=True)


if __name__ == "__main__":
    main()
