"""Keep what pages that show how something is done say of quality: values of runs, or scores to be calibrated.

    python scripts/try/pages.py values "int8" --lists lists/test --depth 20 --runs runs/*.trec
    python scripts/try/pages.py scores "BM25" --model bm25 --lists "NFCorpus's test=lists/nf-test" --depth 10

`values` keeps nDCG@10 per query of each run, under the name of its file, in configs/evidence/kept/pages.tsv.xz;
`scores` keeps those of judged candidates, by a column or a model, and which are relevant, in scores.tsv.xz beside it.
What had the same name before is replaced.
"""

from __future__ import annotations

import argparse
import lzma
from pathlib import Path

import numpy as np
import pandas as pd

import rerank
from rerank.evaluation.measures import evaluate
from rerank.features.letor import open_lists
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
    lists = Lists.open(options.lists[0]).top(options.depth)
    for path in options.runs:
        found = evaluate(read_run(path), lists.qrels, "nDCG@10")
        rows = pd.DataFrame({"query": found.queries, "value": found["nDCG@10"]})
        keep("pages", rows.assign(of=options.name, run=path.stem), ["of", "run"])
        print(options.name, path.stem, f"{rows.value.mean():.4f}", flush=True)


def scores(options: argparse.Namespace) -> None:
    """Scores of the judged candidates of lists, and which are relevant."""
    for name, folder in (one.split("=", 1) for one in options.lists):
        model = None if options.model == "bm25" else rerank.load(options.model)
        lists = open_lists(folder, None)
        lists = lists.select(lists.judged & (lists.lengths > 0)).top(options.depth or lists.lengths.max())
        made = lists.column(options.model) if model is None else model.predict(lists)
        relevant = [int((grade or 0) > 0) for grade in lists.judged_grades()]
        rows = pd.DataFrame({"query": np.repeat(lists.query_ids, lists.lengths), "score": made, "relevant": relevant})
        keep("scores", rows.assign(ranker=options.name, lists=name), ["ranker", "lists"])
        print(options.name, name, len(lists), len(rows), sum(relevant), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["values", "scores"])
    parser.add_argument("name", help="of the statement, or of the ranker")
    parser.add_argument("--lists", required=True, nargs="+", help="lists; for scores NAME=LISTS")
    parser.add_argument("--depth", type=int, help="candidates of a query")
    parser.add_argument("--runs", nargs="+", type=Path, help="values: TREC runs")
    parser.add_argument("--model", help="scores: the column bm25, or a model")
    options = parser.parse_args()
    {"values": values, "scores": scores}[options.what](options)


if __name__ == "__main__":
    main()
