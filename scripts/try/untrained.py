"""Values per query of BM25, cosines and their mixtures, without training: ``--output untrained.tsv.xz``."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from rerank import Lists
from rerank.evaluation.measures import evaluate
from rerank.retrieval.fuse import fuse

SHARES = [share / 20 for share in range(21)]


def values(folder: Path, depth: int) -> pd.DataFrame:
    """nDCG@10 of every list's top candidates, reordered by each share of the column ``cosine``."""
    lists = Lists.open(folder).top(depth)
    runs = [lists.run(), lists.run("cosine")]
    columns = {}
    for share in SHARES:
        found = evaluate(fuse(runs, [1 - share, share]), lists.store.qrels, "nDCG@10")
        columns[f"{share:.2f}"] = pd.Series(found["nDCG@10"], found.queries)
    table = pd.DataFrame(columns).rename_axis("query").reset_index()
    table.insert(0, "collection", folder.name.removesuffix("-test"))
    table.insert(1, "depth", depth)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lists", nargs="+", metavar="FOLDER:DEPTH", help="lists with the columns bm25 and cosine")
    parser.add_argument("--output", required=True)
    given = parser.parse_args()
    tables = [values(Path(folder), int(depth)) for folder, depth in (one.rsplit(":", 1) for one in given.lists)]
    pd.concat(tables).round(6).to_csv(given.output, sep="\t", index=False)


if __name__ == "__main__":
    main()
