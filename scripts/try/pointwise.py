"""Is a relative loss better than a pointwise one on text? SciFact and NFCorpus, a fresh head, 807 queries once.

    python scripts/try/pointwise.py --train lists/train --test lists/test --folder pointwise

after documents.py, whose lists, twin-sigmoid's values and BM25's top 20 it goes by.

Hypotheses, written down before the first value of BCE or softmax cross-entropy was looked at (nDCG@10, 300 claims, one
seed, one rate for all): softmax cross-entropy and twin-sigmoid are each better than BCE, alone; in halves with BM25
each differs from BCE by less than .01. The primary comparison is softmax cross-entropy with BCE, alone.

More, written down before the first value of LambdaLoss, of MSE, of another rate or of more passes was looked at:
LambdaLoss is better than BCE and than MSE, alone. With three passes, softmax cross-entropy is still better than BCE,
alone, which is the primary comparison, but in halves with BM25 the two differ by less than .01; with four times the
rate, in one pass, as well.

And written down before the first value of BCE with a prior, or of twin-sigmoid at another rate, was looked at: in one
pass BCE with a prior of .1 is better than BCE without, alone, which is the primary comparison, and in halves with BM25
differs from softmax cross-entropy by less than .01. With four times the rate twin-sigmoid is better than with the
ladder's, mixed with BM25 and the cosines.

Last, written down before the first value of twin-sigmoid in three passes, of a second seed, or of NFCorpus (lists made
by the same commands, 807 of its training queries drawn with `--queries 807`, one pass, one seed) was looked at:
1. On SciFact, three passes of twin-sigmoid are better than one, mixed with BM25 and the cosines (primary), and differ
   from three of softmax cross-entropy by less than .01, so mixed.
2. On NFCorpus BCE with a prior of .1 is better than BCE without, alone (primary). In halves with BM25 softmax
   cross-entropy and twin-sigmoid each differ from BCE with that prior, and from MSE, by less than .01.
3. Twin-sigmoid is better than MSE, alone: on NFCorpus, and with a second seed on SciFact.

And, written down before the first value of MSE, or of more than one pass, on NFCorpus was looked at (what is said of
MSE above still holds): with three passes softmax cross-entropy is better there than with one, in halves with BM25.

A killed run resumes; values per query are added to configs/evidence/kept/pointwise.tsv.xz as models finish.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from documents import ENCODER, KEPT, keep_mixes, keep_untrained, parser_of, prepared

from rerank import losses
from rerank.ladder.plan import training, whole
from rerank.training.fit import fit

LOSSES = {name: getattr(losses, name) for name in ("BCE", "SoftmaxCE", "LambdaLoss", "MSE")}
LOSSES |= {"BCE-prior": partial(losses.BCE, prior=0.1)}
LOSSES |= {"TwinSigmoid": partial(losses.TwinSigmoidNDCG, alpha="spread")}
"""In the order in which they are trained."""


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=[*LOSSES])
    parser.add_argument("--rate", type=int, default=1, help="times the ladder's rates")
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--queries", type=int, help="training queries to draw; all by default")
    parser.add_argument("--output", type=Path, default=KEPT.with_name("pointwise.tsv.xz"), help="values (.tsv.xz)")
    args = parser.parse_args()
    train, split, lists = prepared(args)
    if not (lists / "train").is_dir():
        drawn = np.random.default_rng(1).permutation(len(train))[: args.queries]
        whole(train.select(np.sort(drawn))).save(lists / "train")
    keep_untrained(args.output, split, {"loss": "", "rate": 0, "passes": 0, "seed": 0})
    for seed in args.seeds:
        config = training(ENCODER, "embedding", lists / "train", seed, args.passes, "nDCG@10")
        rates = {name: args.rate * getattr(config.optimization, name) for name in ("encoder_lr", "head_lr")}
        config = replace(config, optimization=replace(config.optimization, **rates))
        for name in args.losses:
            chosen = replace(config, loss=LOSSES[name]())
            folder = args.folder / f"{name}-{args.rate}x-{args.passes}-{seed}"
            about = {"loss": name, "rate": args.rate, "passes": args.passes, "seed": seed}
            keep_mixes(args.output, split, about, str(fit(chosen, folder).folder / "best"))


if __name__ == "__main__":
    main()
