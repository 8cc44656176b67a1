"""Keep nDCG@10 per query of runs, under the names of their files, in configs/evidence/kept/pages.tsv.xz.

    python scripts/try/pages.py "arithmetic" --lists lists/test --depth 20 --runs runs/*.trec

Rows of the same name are replaced.
"""

from __future__ import annotations

import argparse
import lzma
from pathlib import Path

import pandas as pd

from rerank.evaluation.measures import evaluate
from rerank.lists.view import Lists
from rerank.retrieval.runs import read_run
from rerank.storage.files import atomic_file

KEPT = Path(__file__).parents[2] / "configs" / "evidence" / "kept"


def keep(name: str, rows: pd.DataFrame, by: list[str]) -> None:
    """Add rows to a kept table, in place of those that are the same in these columns."""
    path = KEPT / f"{name}.tsv.xz"
    if path.exists():
        kept = pd.read_csv(path, sep="\t", dtype={"query": str})
        old = pd.MultiIndex.from_frame(kept[by]).isin(pd.MultiIndex.from_frame(rows[by]))
        rows = pd.concat([kept[~old], rows])
    with atomic_file(path) as part:
        part.write_bytes(lzma.compress(rows.to_csv(sep="\t", index=False, float_format="%.7g").encode(), preset=9))


def values(options: argparse.Namespace) -> None:
    """nDCG@10 per query of runs."""
    lists = Lists.open(options.lists).top(options.depth)
    for path in options.runs:
        found = evaluate(read_run(path), lists.qrels, "nDCG@10")
        rows = pd.DataFrame({"query": found.queries, "value": found["nDCG@10"]})
        keep("pages", rows.assign(of=options.name, run=path.stem), ["of", "run"])
        print(options.name, path.stem, f"{rows.value.mean():.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="name of the statement")
    parser.add_argument("--lists", required=True, help="judged lists")
    parser.add_argument("--depth", type=int, help="candidates of a query")
    parser.add_argument("--runs", nargs="+", type=Path, help="TREC runs")
    values(parser.parse_args())


if __name__ == "__main__":
    main()
