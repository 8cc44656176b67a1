"""How many judged claims are documents alone worth? SciFact, trained as `rerank auto` trains its rungs.

    rerank retrieve --collection beir:DIR/scifact/train --depth 50 --add-relevant --output lists/train
    rerank retrieve --collection beir:DIR/scifact/test --depth 50 --output lists/test
    python scripts/try/documents.py --train lists/train --test lists/test --folder documents

Hypotheses, written down before the first test value was looked at: trained on documents alone and mixed with BM25
in equal shares, MiniLM is better than BM25 (nDCG@10, the top 20 of the 300 test claims); fine-tuned on 50 judged
claims, a start from documents alone is better than one from a fresh head; on all claims the two are within .01.
Claims are drawn by the seed, and 50 are among 200.

More, with `--passes 3`, written down before the first value of more than one pass from documents alone was looked at:
three passes over all claims from there are better than one, mixed with BM25 and the cosines (primary), and so mixed
differ by less than .01 from three passes from a fresh head (pointwise.py's).

A killed run resumes; values per claim are added to configs/evidence/kept/documents.tsv.xz as models finish.
"""

from __future__ import annotations

import argparse
import lzma
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from rerank.ladder.own import own_lists
from rerank.ladder.plan import OWN, training, whole
from rerank.ladder.split import Blend, Split
from rerank.lists.view import Lists
from rerank.scoring.outputs import add_cosines, cosine_name
from rerank.storage.files import atomic_file
from rerank.training.fit import fit

ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
COLUMNS = "bm25", cosine_name(ENCODER)
KEPT = Path(__file__).parents[2] / "configs" / "evidence" / "kept" / "documents.tsv.xz"
PASSES = {50: 4, 200: 2, None: 1}
"""By the number of judged claims; None for all."""
CELLS = [(50, 1), (200, 1), (None, 1), (50, 2), (200, 2), (50, 3), (200, 3)]
"""Judged claims and seed, in the order in which they are run."""
DEPTH = 20
"""BM25's candidates of a test claim."""
MIXES = {"alone": (1.0, 0.0, 0.0), "+ BM25": (0.5, 0.5, 0.0), "+ BM25 + cosines": (0.5, 0.25, 0.25)}
"""Shares of the model, BM25 and MiniLM's cosines: fixed, none is tuned."""


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--starts", nargs="+", choices=["documents", "fresh"], default=["documents", "fresh"])
    parser.add_argument("--passes", type=int, help="passes over all claims, which are all that is trained on then")
    parser.add_argument("--output", type=Path, default=KEPT, help="values per claim (.tsv.xz)")
    args = parser.parse_args()
    cells, more = (CELLS, {}) if args.passes is None else ([(None, 1)], {"passes": args.passes})
    train, split, lists = prepared(args)
    own_lists(whole(train), set(split.lists.query_keys), lists / OWN)
    none = dict.fromkeys(more, 0)
    keep_untrained(args.output, split, {"start": "", "claims": 0, "seed": 0} | none)
    own = str(args.folder / OWN / "best")
    if "documents" in args.starts:
        fit(training(ENCODER, "embedding", lists / OWN, 1, 1, "nDCG@10"), args.folder / OWN)
        keep_mixes(args.output, split, {"start": "documents", "claims": 0, "seed": 1} | none, own)
    starts = {"documents": (own, "head"), "fresh": (ENCODER, "embedding")}
    for (claims, seed), start in product(cells, args.starts):
        name = f"{claims or 'all'}-{seed}"
        few = lists / f"train-{name}"
        if not few.is_dir():
            drawn = np.random.default_rng(seed).permutation(len(train))[:claims]
            whole(train.select(np.sort(drawn))).save(few)
        passes = more.get("passes", PASSES[claims])
        config = training(*starts[start], few, seed, passes, "nDCG@10")
        model = str(fit(config, args.folder / f"{start}-{name}-{passes}").folder / "best")
        keep_mixes(args.output, split, {"start": start, "claims": claims or len(train), "seed": seed} | more, model)


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the options of a study of SciFact."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True, help="lists of the training claims")
    parser.add_argument("--test", required=True, help="lists of the test claims")
    parser.add_argument("--folder", type=Path, required=True, help="where lists and models go")
    return parser


def prepared(args: argparse.Namespace) -> tuple[Lists, Split, Path]:
    """The training claims that no test claim repeats, the test claims with their cosines, and the folder of lists."""
    train, test, lists = Lists.open(args.train), Lists.open(args.test), args.folder / "lists"
    if not (lists / "test").is_dir():
        test.top(DEPTH).save(lists / "test")
    if COLUMNS[1] not in Lists.open(lists / "test").store.column_names:
        add_cosines(lists / "test", ENCODER)
    train = train.select(np.flatnonzero(~np.isin(train.query_keys, test.query_keys)))
    return train, Split(args.folder, "test", "nDCG@10"), lists


def keep_untrained(output: Path, split: Split, about: dict[str, object]) -> None:
    """Add the values of what nothing trained."""
    for mix, weights in {"BM25": (1.0, 0.0), "BM25 + cosines": (0.5, 0.5), "cosines": (0.0, 1.0)}.items():
        keep(output, split, about | {"mix": mix}, Blend.mix(zip(COLUMNS, weights, strict=True)))


def keep_mixes(output: Path, split: Split, about: dict[str, object], model: str) -> None:
    """Add a model's values, alone and in each of :data:`MIXES`."""
    for mix, (text, *shares) in MIXES.items():
        keep(output, split, about | {"mix": mix}, Blend.mix(zip(COLUMNS, shares, strict=True), model, text))


def keep(output: Path, split: Split, about: dict[str, object], ranker: Blend) -> None:
    """Add a ranker's values to those that are kept, and print their mean."""
    kept = pd.read_csv(output, sep="\t", dtype={"query": str}, na_filter=False) if output.exists() else pd.DataFrame()
    if len(kept) and (kept[list(about)] == pd.Series(about)).all(axis=1).any():
        return
    values = split.values(ranker)
    new = pd.DataFrame({"query": split.lists.query_ids, "value": np.round(values, 5)}).assign(**about)
    with atomic_file(output) as path:
        content = pd.concat([kept, new]).to_csv(sep="\t", index=False).encode()
        path.write_bytes(lzma.compress(content, preset=9))
    print(about, round(float(values.mean()), 4), flush=True)


if __name__ == "__main__":
    main()
