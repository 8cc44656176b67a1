"""Is a relative loss better than a pointwise one on text? SciFact, a fresh head, all training claims once.

    python scripts/try/pointwise.py --train lists/train --test lists/test --folder pointwise

after documents.py, whose lists, twin-sigmoid's values and BM25's top 20 it goes by.

Hypotheses, written down before the first value of BCE or softmax cross-entropy was looked at (nDCG@10, 300 claims, one
seed, one rate for all): softmax cross-entropy and twin-sigmoid are each better than BCE, alone; in halves with BM25
each differs from BCE by less than .01. The primary comparison is softmax cross-entropy with BCE, alone.

A killed run resumes; values per claim are added to configs/evidence/kept/pointwise.tsv.xz as models finish.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from documents import DEPTH, ENCODER, KEPT, MIXES, PASSES, keep

from rerank import losses
from rerank.ladder.plan import training, whole
from rerank.ladder.split import Blend, Split
from rerank.lists.view import Lists
from rerank.scoring.cosines import add_cosines, cosine_name
from rerank.training.fit import fit

LOSSES = ("BCE", "SoftmaxCE", "LambdaLoss", "MSE")
"""In the order in which they are trained."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True, help="lists of the training claims")
    parser.add_argument("--test", required=True, help="lists of the test claims")
    parser.add_argument("--folder", type=Path, required=True, help="where lists and models go")
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=LOSSES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--output", type=Path, default=KEPT.with_name("pointwise.tsv.xz"), help="values (.tsv.xz)")
    args = parser.parse_args()
    train, test, lists = Lists.open(args.train), Lists.open(args.test), args.folder / "lists"
    train = train.select(np.flatnonzero(~np.isin(train.query_keys, test.query_keys)))
    if not (lists / "test").is_dir():
        test.top(DEPTH).save(lists / "test")
    cosine = cosine_name(ENCODER)
    if cosine not in Lists.open(lists / "test").store.column_names:
        add_cosines(lists / "test", ENCODER)
    split = Split(args.folder, "test", "nDCG@10")
    if not (lists / "train").is_dir():
        whole(train).save(lists / "train")
    for seed in args.seeds:
        config = training(ENCODER, "embedding", lists / "train", seed, PASSES[None], "nDCG@10")
        for name in args.losses:
            chosen = replace(config, loss=getattr(losses, name)())
            model = str(fit(chosen, args.folder / f"{name}-{seed}").folder / "best")
            for mix, (text, *shares) in MIXES.items():
                ranker = Blend.mix(zip(("bm25", cosine), shares, strict=True), model, text)
                keep(args.output, split, {"loss": name, "seed": seed, "mix": mix}, ranker)


if __name__ == "__main__":
    main()
