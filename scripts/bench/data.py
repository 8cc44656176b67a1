"""Data on its way into lists: seconds and memory of runs and feature files.

    python scripts/bench/data.py runs [--pairs 10000000] [--depth 1000] [--ranx PYTHON] [--only WORD ...]
    python scripts/bench/data.py letor [--rows 60000]

Each prints a Markdown table: runs that of docs/internals/scale.md, letor that of docs/letor.md. ``--folder DIR`` says
where to work (by default the folder of temporary files), and ``--rounds`` how often each is timed. A row is a process
of its own (``common.Cost`` says what is counted).

runs: a run of MS MARCO's shape read, written and made into lists, in every format and by other readers, and the same as
    hits with texts. ``--ranx`` names an interpreter that has ranx; ``--only`` picks rows by words of their names.
letor: files shaped like MSLR-WEB30K's (136 features, a third counts, a third decimals, a third mostly 0, lists of 120)
    read by this package and by scikit-learn; *to lists* is all that a user waits for.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import cost, head, least, parser_of, row

MARCO_PASSAGES, WEB30K_ROWS, FEATURES = 8_841_823, 2_270_296, 136


IMPORTS = """
import pandas, pyarrow.csv, rerank.lists.build, rerank.lists.hits, rerank.retrieval.bm25
from rerank.commands.cli import main
from rerank.retrieval.runs import read_run, write_run
def lists(*words):
    assert main(["retrieve", *words, "--depth", "1000000", "--overwrite", "--output", "lists"]) == 0
"""
RANX = "ranx `Run.from_file`"
READERS = {  # what a row says: setup, what is timed, the file
    "`read_run`, TREC": (IMPORTS, "run = read_run(*arguments)", "run.trec"),
    "`read_run`, TREC, .gz": (IMPORTS, "run = read_run(*arguments)", "run.trec.gz"),
    "`read_run`, MS MARCO": (IMPORTS, "run = read_run(*arguments)", "run.tsv"),
    "`read_run`, Parquet": (IMPORTS, "run = read_run(*arguments)", "run.parquet"),
    "`read_run`, and every query's list": (
        IMPORTS,
        "run = read_run(*arguments); sum(len(run[query]) for query in run)",
        "run.trec",
    ),
    "`write_run` of that": (IMPORTS + "run = read_run(*arguments)", "write_run('written.trec', run)", "run.trec"),
    "pandas `read_csv`, TREC": (
        IMPORTS,
        "names = ['query_id', 'Q0', 'doc_id', 'rank', 'score', 'tag']\n"
        "run = pandas.read_csv(*arguments, sep=' ', names=names, dtype={'query_id': str, 'doc_id': str})",
        "run.trec",
    ),
    "ir_measures `read_trec_run`": (
        "import ir_measures",
        "run = list(ir_measures.read_trec_run(*arguments))",
        "run.trec",
    ),
    RANX: ("from ranx import Run", "run = Run.from_file(*arguments, kind='trec')", "run.trec"),
    "`rerank retrieve --run`, TREC": (IMPORTS, "lists('--collection', 'files:.', '--run', *arguments)", "run.trec"),
    "`rerank retrieve`, `hits:` JSON lines": (IMPORTS, "lists('--collection', 'hits:' + arguments[0])", "hits.jsonl"),
    "`rerank retrieve`, `hits:` Parquet": (IMPORTS, "lists('--collection', 'hits:' + arguments[0])", "hits.parquet"),
}


def runs(options: argparse.Namespace, work: Path) -> None:
    """Cost of reading, writing and building from a run."""
    make_run(work, options.pairs, options.depth)
    os.chdir(work)
    head(f"{options.pairs:,} pairs", "seconds", "us a pair", "processor's us a pair", "bytes a pair held", "at most")
    for name, (setup, code, file) in READERS.items():
        if (name == RANX and not options.ranx) or (options.only and not any(word in name for word in options.only)):
            continue
        found = cost(code, file, setup=setup, python=options.ranx if name == RANX else sys.executable)
        us = 1e6 / options.pairs
        each = [f"{found.seconds:.1f}", f"{found.seconds * us:.2f}", f"{found.busy * us:.2f}"]
        row(name, *each, f"{found.held / options.pairs:.0f}", f"{found.most / options.pairs:.0f}")


def make_run(folder: Path, pairs: int, depth: int) -> None:
    """``run.trec``, ``.trec.gz``, ``.tsv`` and ``.parquet``; ``hits.jsonl`` and ``.parquet``; a ``files:`` folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, passages = np.random.default_rng(0), min(MARCO_PASSAGES, max(pairs, depth))
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
            name, text = str(1_000_000 + query), f"the text of query {1_000_000 + query}"
            rows = list(enumerate(zip(documents, scores.tolist(), strict=True), 1))
            trec.writelines(f"{name} Q0 {document} {rank} {score:.6f} made\n" for rank, (document, score) in rows)
            marco.writelines(f"{name}\t{document}\t{rank}\n" for rank, (document, _) in rows)
            queries.write(f"{name}\t{text}\n")
            columns = [[name] * depth, documents, scores.astype(np.float32), [text] * depth]
            batch.append(pa.record_batch([*columns, [f"the text of passage {one}" for one in documents]], schema=texts))
            lines.writelines(json.dumps(hit) + "\n" for hit in batch[-1].to_pylist())
            if len(batch) == 100 or query == -(-pairs // depth) - 1:
                table = pa.Table.from_batches(batch)
                parquet.write_table(table.select(schema.names))
                hits.write_table(table)
                batch = []
    with (folder / "run.trec").open("rb") as plain, gzip.open(folder / "run.trec.gz", "wb", 1) as packed:
        shutil.copyfileobj(plain, packed)


def letor(options: argparse.Namespace, work: Path) -> None:
    """Seconds and memory of reading a feature file."""
    path = work / "train.txt"
    make_features(path, options.rows)
    ours = """
from pathlib import Path
from rerank.features.parse import parse_file, store_features
file, folder = map(Path, arguments)
"""
    many = os.cpu_count() or 1
    contenders = {
        "scikit-learn": (
            "import numpy\nfrom sklearn.datasets import load_svmlight_file",
            "load_svmlight_file(arguments[0], query_id=True, dtype=numpy.float32)",
        ),
        **{
            f"parsing, {threads} thread(s)": (ours, f"sum(1 for _ in parse_file(file, threads={threads}))")
            for threads in dict.fromkeys([1, many])
        },
        f"to lists, {many} thread(s)": (ours, "store_features(file, folder, '')"),
    }
    rounds = [
        {
            name: cost(code, path, work / f"{turn}-{i}", setup=setup)
            for i, (name, (setup, code)) in enumerate(contenders.items())
        }
        for turn in range(options.rounds)
    ]
    megabytes = path.stat().st_size / 1e6
    print(f"{options.rows} rows x {FEATURES} features, {megabytes:.0f} MB; best of {options.rounds}\n")
    head(
        "", "s", "of all processors", "MB/s", "rows/s", "times scikit-learn", "a WEB30K fold's training file", "memory"
    )
    theirs = least(turn["scikit-learn"] for turn in rounds).seconds
    for name in contenders:
        found = least(turn[name] for turn in rounds)
        rate = options.rows / found.seconds
        speed = [f"{megabytes / found.seconds:.0f}", f"{rate:.0f}", f"{theirs / found.seconds:.1f}"]
        whole = [f"{WEB30K_ROWS / rate:.0f} s", f"{found.most >> 20} MiB"]
        row(name, f"{found.seconds:.2f}", f"{found.busy:.2f}", *speed, *whole)


def make_features(path: Path, rows: int) -> None:
    """A file of feature vectors."""
    rng = np.random.default_rng(0)
    kinds = (lambda v: str(int(v)), lambda v: f"{v:.6f}", lambda v: f"{v:.6g}" if v > 10 else "0")
    with path.open("w") as file:
        for start in range(0, rows, 10_000):
            values = rng.lognormal(sigma=2, size=(min(10_000, rows - start), FEATURES)) * 10
            for i, vector in enumerate(values.tolist(), start):
                cells = " ".join(f"{j}:{kinds[j % 3](value)}" for j, value in enumerate(vector, start=1))
                file.write(f"{rng.integers(0, 5)} qid:{i // 120} {cells} \n")


def main() -> None:
    """Measure what was asked for."""
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["runs", "letor"])
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranx")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        globals()[options.what](options, Path(folder))


if __name__ == "__main__":
    main()
