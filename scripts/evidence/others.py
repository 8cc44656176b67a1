"""The smaller studies: measures, seen abstracts, teachers, lengths; and what all of them cost."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from itertools import product

import pandas as pd

from scripts.evidence.kept import FIRST, MEASURE, MIXED, claims_of_scifact, kept
from scripts.evidence.losses import DIRECT, OTHER, SIX
from scripts.evidence.statistics import Found, Pool, difference, mean, of_queries, plain, pooled, table

MATRICES = {"matrix-mq2008": "MQ2008", "matrix-ohsumed": "OHSUMED", "matrix-dl": "DL 2019"}
FOUR = ("P@5", "RR", "nDCG@10", "AP")


def _own_in_bold(trained: str, cells: Iterable[object]) -> list[object]:
    return [trained, *(f"**{cell}**" if trained == one else cell for cell, one in zip(cells, FOUR, strict=True))]


def against_ndcg(name: str, trained: str, measure: str) -> Found:
    """Training on a measure against training on nDCG@10."""
    return difference(kept(name).table(trained, measure), kept(name).table(MEASURE, measure))


def own_measure(trained: str, measure: str) -> Pool:
    return pooled([against_ndcg(name, trained, measure) for name in MATRICES])


@table("matrix-mq2008", "matrix-mq2008")
@table("matrix-ohsumed", "matrix-ohsumed")
@table("matrix-dl", "matrix-dl")
def matrix(name: str) -> Iterator[list[object]]:
    """Trained on a measure (rows), measured by another (columns)."""
    yield [MATRICES[name], *FOUR]
    for trained in FOUR:
        yield _own_in_bold(trained, [mean(kept(name).table(trained, measure)) for measure in FOUR])


@table("matrix-pooled")
def matrix_pooled() -> Iterator[list[object]]:
    yield ["", *FOUR]
    for trained in ("P@5", "RR", "AP"):
        yield _own_in_bold(trained, [own_measure(trained, measure) for measure in FOUR])


@table("matrix-power")
def matrix_power() -> Iterator[list[object]]:
    """What each comparison with nDCG@10's row would have found, without a correction."""
    yield ["", "− trained on nDCG@10, in its own measure", "finds"]
    for name, trained in product(MATRICES, ("P@5", "RR", "AP")):
        gap = against_ndcg(name, trained, trained)
        yield [f"{MATRICES[name]}, {trained} on itself", gap, plain(gap.finds(), 3)]


@functools.cache
def rankings_of_scifact() -> pd.DataFrame:
    """Seven rankings: BM25, the fusion, four trained and mixed ones, and the two of hybrid-scifact."""
    rankings = claims_of_scifact().copy()
    for method, shown in ((OTHER, "LambdaLoss, fused candidates"), (OTHER + MIXED, "the same + its first stage")):
        rankings[shown] = kept("hybrid-scifact").table(method).droplevel("fold").iloc[:, 0]
    return rankings


def against_fusion(name: str, part: int | None = None, baseline: str = "fused") -> Found:
    rankings = rankings_of_scifact()
    rankings = rankings if part is None else rankings[rankings.seen == part]
    return of_queries(rankings[name] - rankings[baseline])


@table("seen")
def seen_and_unseen() -> Iterator[list[object]]:
    rankings = rankings_of_scifact()
    parts = [rankings, *(rankings[rankings.seen == part] for part in (1, 0))]
    yield ["nDCG@10", "300 claims", "196 seen", "104 others", "− BM25", "− fusion, 196 seen", "− fusion, 104 others"]
    for name in rankings.columns.drop("seen"):
        shown = {"fused": "BM25 + cosines, equal shares, no training"}.get(name, name)
        gaps = ["", ""] if name == "fused" else [against_fusion(name, part) for part in (1, 0)]
        gain = "" if name == "BM25" else against_fusion(name, baseline="BM25")
        yield [shown, *(mean(part[name]) for part in parts), gain, *gaps]


JUDGED = "judgments, softmax CE"
TEACHERS = {
    "judgments, TwinSigmoid": "judgments, TwinSigmoid",
    "order of the llm, RankNet": "a language model's order, RankNet",
    "ranks of the llm as gains, TwinSigmoid": "its ranks as gains, TwinSigmoid",
    "scores of SPLADE, margin MSE": "SPLADE's scores on other queries, MarginMSE",
}


def taught(method: str, against: str = JUDGED) -> Found:
    return difference(kept("distillation").table(method), kept("distillation").table(against))


@table("teachers")
def teachers() -> Iterator[list[object]]:
    yield ["taught by", "nDCG@10", "− BM25", f"− {JUDGED}", "finds"]
    for method, shown in {JUDGED: JUDGED, **TEACHERS}.items():
        gaps = [] if method == JUDGED else [taught(method), plain(taught(method).finds(), 3)]
        yield [shown, mean(kept("distillation").table(method)), taught(method, FIRST), *(gaps or ["", ""])]


@table("lengths")
def lengths() -> Iterator[list[object]]:
    yield ["", "8", "32", "100", "100 − 8"]
    for (name, shown), loss in product({"lengths": "a fresh head", "lengths-started": "BM25"}.items(), (DIRECT, OTHER)):
        short, middle, long = (kept(name).table(f"{loss}, {length}") for length in (8, 32, 100))
        yield [f"{loss} from {shown}", *map(mean, (short, middle, long)), difference(long, short)]


@table("losses-cost", *SIX)
@table("hybrid-cost", "hybrid-nfcorpus")
@table("seen-cost", "hybrid-scifact")
@table("matrix-cost", *MATRICES)
@table("teachers-cost", "distillation")
@table("lengths-cost", "lengths", "lengths-started")
def costs(*names: str) -> Iterator[list[object]]:
    """Trainings and seconds, as the cells say."""
    yield ["values in `configs/evidence/kept`", "training runs", "seconds"]
    for name in names:
        yield [name, kept(name).cells, f"{kept(name).seconds:,.0f}"]
