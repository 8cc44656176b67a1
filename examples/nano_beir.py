"""Evaluate a reranker on all NanoBEIR collections: one table, and the mean.

python examples/nano_beir.py cross-encoder/ms-marco-MiniLM-L6-v2
python examples/nano_beir.py runs/x/best --collections nano-beir/scifact beir:data/mine
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

import rerank

NAMES = (
    *("arguana", "climate-fever", "dbpedia-entity", "fever", "fiqa", "hotpotqa", "msmarco", "nfcorpus", "nq"),
    *("quora", "scidocs", "scifact", "webis-touche2020"),
)


def nano_beir(model: str, collections: Sequence[str], depth: int, measure: str, output: Path) -> pd.DataFrame:
    """Rerank BM25's candidates of each collection; lists that are stored already are reused."""
    trained = Path(model, "rerank.json").is_file()
    ranker = rerank.load(model) if trained else rerank.CrossEncoder(model)
    rows = {}
    for name in collections:
        folder = output / name.replace("/", "-").replace(":", "-")
        lists = rerank.Lists.open(folder) if folder.is_dir() else rerank.retrieve(name, depth=depth, output=folder)
        table = rerank.evaluate(lists, {"reranked": ranker.predict(lists)}, measures=measure, baseline="bm25")
        rows[name] = {"queries": len(lists)} | {run: table[run, measure] for run in ("bm25", "reranked")}
    found = pd.DataFrame.from_dict(rows, orient="index")
    found.loc["mean"] = found.mean()  # of collections, whatever their number of queries
    return found.astype({"queries": int})


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Evaluate a reranker on all NanoBEIR collections.")
    parser.add_argument("model", help="folder of a trained model, or a cross-encoder's name on the hub")
    parser.add_argument("--collections", nargs="+", default=[f"nano-beir/{name}" for name in NAMES])
    parser.add_argument("--depth", type=int, default=100, help="candidates per query (default 100)")
    parser.add_argument("--measure", default="nDCG@10", help="measure (default nDCG@10)")
    parser.add_argument("--output", type=Path, default=Path("lists/nano-beir"), help="folder for the lists")
    options = parser.parse_args(argv)
    print(nano_beir(**vars(options)).to_string(float_format="%.4f"))


if __name__ == "__main__":
    main()
