from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from rerank.collections import open_collection
from rerank.lists.build import ORDER, build_lists
from rerank.retrieval.runs import Run, Scored, write_run

HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<!--<script> \" ' ` & &amp; &lt;b&gt; ]]>",
    "{{ 7 * 7 }} {% raw %} ${window.hacked=1} \\u003cb\\u003e",
    "a\u2028b\u2029c\u0000d\u202e e\ufeff\U0001f600",
]
NAME = '"><script>hacked()</script>'
"""Name of the second run."""
QUERIES, DOCUMENTS, DEPTH = 8, 30, 20


def shuffled(seed: int) -> Run:
    rng = random.Random(seed)
    return {
        f"q{query}": [
            Scored(f"d<b>{doc}", float(-rank)) for rank, doc in enumerate(rng.sample(range(DOCUMENTS), DEPTH))
        ]
        for query in range(QUERIES)
    }


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build lists with hostile texts, and the runs ``a.trec`` and ``b.trec`` over them."""
    folder = tmp_path_factory.mktemp("report")
    collection = folder / "collection"
    (collection / "qrels").mkdir(parents=True)
    rng = random.Random(0)
    with (collection / "corpus.jsonl").open("w") as file:
        for i in range(DOCUMENTS):
            text = f"{HOSTILE[i % len(HOSTILE)]} number{i} wing {'lift ' * rng.choice([3, 300])}"
            file.write(json.dumps({"_id": f"d<b>{i}", "title": "", "text": text}) + "\n")
    with (collection / "queries.jsonl").open("w") as file:
        for i in range(QUERIES):
            file.write(json.dumps({"_id": f"q{i}", "text": f"{HOSTILE[i % len(HOSTILE)]} wing{i}"}) + "\n")
    with (collection / "qrels" / "test.tsv").open("w") as file:
        file.write("query-id\tcorpus-id\tscore\n")
        for query in range(QUERIES):
            for doc in rng.sample(range(DOCUMENTS), 8):
                file.write(f"q{query}\td<b>{doc}\t{rng.randint(0, 2)}\n")
            file.write(f"q{query}\td<b>elsewhere\t1\n")
    build_lists(open_collection(f"beir:{collection}/test"), shuffled(1), folder / "lists")
    write_run(folder / "a.trec", shuffled(1))
    write_run(folder / "b.trec", shuffled(2))
    return folder


@pytest.fixture(scope="session")
def report(folder: Path) -> Path:
    """Write the page with the command."""
    from rerank.commands.cli import run

    path = folder / "report.html"
    options = {"qrels": folder / "lists", "measures": "nDCG@5 AP", "baseline": ORDER, "html": path}
    words = [f"--{key}={value}" for key, value in options.items()]
    run(["evaluate", *words, "--runs", ORDER, f"{NAME}={folder / 'b.trec'}"])
    return path
