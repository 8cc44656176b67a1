"""What the help of each command shows besides its options: examples, groups, and what needs no name."""

from __future__ import annotations

from rerank.settings.help import Page

PAGES = {
    "demo": Page(
        examples=(
            "rerank demo                                   # a first table, after minutes",
            'rerank demo --ask "run a command and get its output"',
        )
    ),
    "retrieve": Page(
        examples=(
            "rerank retrieve --collection beir:DIR/scifact/train --add-relevant \\",
            "    --output lists/train",
            "rerank retrieve --collection beir:DIR/scifact/test --output lists/test \\",
            "    --run splade=splade.trec --bm25",
            "rerank retrieve --collection hits:hits.jsonl --output lists/mine",
        ),
        groups={
            "candidates": ("depth", "run", "dense", "bm25", "order", "add_relevant"),
            "queries, documents, judgments": ("queries", "query_fields", "qrels", "fields", "columns"),
            "BM25": ("k1", "b", "language", "index", "threads"),
            "output": ("overwrite",),
        },
    ),
    "lists": Page(
        plain="folder",
        examples=("rerank lists lists/test", "rerank lists lists/test --trained-on lists/train"),
    ),
    "add": Page(
        examples=(
            "rerank add --lists lists/test --run splade=splade.trec clicks=clicks.parquet",
            "rerank add --lists lists/test --embed sentence-transformers/all-MiniLM-L6-v2",
            "rerank add --lists lists/test --model runs/x/best --name ce",
            "rerank add --lists lists/test --drop ce",
        ),
        groups={
            "what to add or remove": ("run", "model", "embed", "drop"),
            "a model's column": ("name", "in_sample", "no_mix", "precision", "token_budget"),
        },
    ),
    "export": Page(
        examples=(
            "rerank export --lists lists/test --output lists.jsonl",
            "rerank export --model runs/x/best --lists lists/test --formats onnx \\",
            "    --output exported",
        ),
        groups={"of lists": ("column",), "of a model": ("model", "formats", "depth", "force")},
    ),
    "auto": Page(
        examples=("rerank auto --train lists/train --test lists/test --hours 2 \\", "    --output ladders/mine")
    ),
    "compare": Page(
        examples=(
            "rerank compare --lists lists/validation --models runs/a/best runs/b/best \\",
            "    --depths 10 50 --budget-ms 100",
        )
    ),
    "calibrate": Page(examples=("rerank calibrate --model runs/x/best --lists lists/validation",)),
    "average": Page(
        examples=(
            "rerank average --models runs/a/best runs/b/best --lists lists/validation \\",
            "    --output runs/mean",
        )
    ),
    "rerank": Page(
        examples=(
            "rerank rerank --model runs/x/best --lists lists/test --output x.trec",
            "rerank rerank --model runs/x/best --stdin < questions.jsonl",
        ),
        groups={
            "stored lists": ("lists", "output", "depth"),
            "lines of JSON": ("stdin",),
            "scores": ("no_mix",),
            "speed": ("precision", "token_budget"),
        },
    ),
    "serve": Page(plain="rankers", examples=("rerank serve runs/x/best --port 8000",)),
    "evaluate": Page(
        examples=(
            "rerank evaluate --qrels lists/test --runs bm25 ours=x.trec --baseline bm25",
            "rerank evaluate --qrels qrels.txt --runs a.trec b.trec \\",
            '    --measures "nDCG@10 AP" --table table.md --html report.html',
        ),
        groups={
            "what to measure": ("measures", "empty", "trained_on"),
            "differences": ("baseline", "tests", "correction"),
            "output": ("table", "json", "per_query", "html", "lists"),
        },
    ),
    "experiment": Page(
        examples=(
            "rerank experiment --config experiment.yaml --dry_run",
            "rerank experiment --config experiment.yaml --html report.html",
        )
    ),
    "verify": Page(plain="path", examples=("rerank verify runs/x",)),
    "losses": Page(plain="name", examples=("rerank losses", "rerank losses LambdaLoss")),
}
"""By command; ``rerank train`` has a page of its own."""
