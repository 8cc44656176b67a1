"""`rerank retrieve` for few queries of a large collection: all documents read, and the candidates looked up by id.

    python scripts/bench_lookup.py [--passages 1000000] [--queries 43] [--rounds 3] [--folder DIR]

prints a Markdown table of seconds of the whole command, imports and Java's start included, the best of the rounds. The
passages are those of `bench_scale.py`, once as a TSV, once as JSON lines, once as the stored text of a Lucene index,
which is also the index that is searched. What is made in DIR is used again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_scale import make_data

from rerank.batched import batched
from rerank.files import atomic_file, atomic_folder
from rerank.jvm import java_class

COMMAND = """
import sys
import rerank.lists.build as build
from rerank.cli import main
if sys.argv[1] == "read":
    build.LOOKUPS = 0
sys.exit(main(sys.argv[2:]))
"""


def make_json(folder: Path, source: Path) -> None:
    """The passages as BEIR has them."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    with source.open() as lines, atomic_file(folder / "corpus.jsonl") as temporary, temporary.open("w") as file:
        for id, text in (line.rstrip("\n").split("\t") for line in lines):
            file.write(json.dumps({"_id": id, "title": "", "text": text}) + "\n")


def make_index(folder: Path, source: Path) -> None:
    """A Lucene index that stores the texts."""
    with atomic_folder(folder) as temporary, source.open() as lines:
        options = ["-input", "", "-collection", "JsonCollection", "-storeContents", "-threads", str(os.cpu_count())]
        indexer = java_class("io.anserini.index.SimpleIndexer")(["-index", str(temporary), *options])
        for batch in batched(lines, 5000):
            pairs = (line.rstrip("\n").split("\t") for line in batch)
            indexer.addRawDocuments([json.dumps({"id": id, "contents": text}) for id, text in pairs])
        indexer.close()


def seconds(way: str, collection: str, work: Path) -> float:
    """Of one command; its lists are deleted."""
    output = work / "lists"
    words = ["retrieve", "--collection", collection, "--output", str(output), "--index", str(work / "index")]
    words += ["--queries", str(work / "tsv" / "queries.tsv"), "--qrels", str(work / "tsv" / "qrels")]
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", COMMAND, way, *words], check=True, stderr=subprocess.DEVNULL)
    passed = time.perf_counter() - started
    shutil.rmtree(output)
    return passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=43)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where to work; by default a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(options.folder or temporary)
        if not (work / "tsv").exists():
            make_data(work / "tsv", options.passages, options.queries, 0)
        if not (work / "json" / "corpus.jsonl").exists():
            make_json(work / "json", work / "tsv" / "docs.tsv")
        if not (work / "index").exists():
            make_index(work / "index", work / "tsv" / "docs.tsv")
        print("| collection | all read, s | looked up, s | ratio |\n|---|---:|---:|---:|", flush=True)
        for kind, name in (("lucene", "index"), ("beir", "json"), ("files", "tsv")):
            collection = f"{kind}:{work / name}"
            rounds = [[seconds(way, collection, work) for way in ("read", "look")] for _ in range(options.rounds)]
            read, looked = map(min, zip(*rounds, strict=True))
            print(f"| `{kind}:` | {read:.1f} | {looked:.1f} | {read / looked:.1f} |", flush=True)


if __name__ == "__main__":
    main()
