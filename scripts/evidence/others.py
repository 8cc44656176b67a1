"""The smaller studies: measures, seen abstracts, teachers, lengths; and what all of them cost."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import pandas as pd

from scripts.evidence.kept import FIRST, MEASURE, MIXED, claims_of_scifact, kept
from scripts.evidence.losses import DIRECT, OTHER
from scripts.evidence.statistics import Found, Pool, difference, mean, of_queries, plain, pooled, rows

MATRICES = {"matrix-mq2008": "MQ2008", "matrix-ohsumed": "OHSUMED", "matrix-dl": "DL 2019"}
FOUR = ("P@5", "RR", "nDCG@10", "AP")


def _own_in_bold(trained: str, cells: Iterable[object]) -> list[object]:
    return [trained, *(f"**{cell}**" if trained == one else cell for cell, one in zip(cells, FOUR, strict=True))]


def matrix(name: str) -> str:
    """Trained on a measure (rows), measured by another (columns)."""
    body = [_own_in_bold(one, [mean(kept(name).table(one, measure)) for measure in FOUR]) for one in FOUR]
    return rows([MATRICES[name], *FOUR], body)


def against_ndcg(name: str, trained: str, measure: str) -> Found:
    """Training on a measure against training on nDCG@10."""
    return difference(kept(name).table(trained, measure), kept(name).table(MEASURE, measure))


def own_measure(trained: str, measure: str) -> Pool:
    return pooled([against_ndcg(name, trained, measure) for name in MATRICES])


def matrix_pooled() -> str:
    body = [_own_in_bold(one, [own_measure(one, measure) for measure in FOUR]) for one in ("P@5", "RR", "AP")]
    return rows(["", *FOUR], body)


def matrix_power() -> str:
    """What each comparison with nDCG@10's row would have found, without a correction."""
    body = []
    for name, shown in MATRICES.items():
        for trained in ("P@5", "RR", "AP"):
            one = against_ndcg(name, trained, trained)
            body.append([f"{shown}, {trained} on itself", one, plain(one.finds(), 3)])
    return rows(["", "− trained on nDCG@10, in its own measure", "finds"], body)


@functools.cache
def rankings_of_scifact() -> pd.DataFrame:
    """Seven rankings: BM25, the fusion, four trained and mixed ones, and the two of hybrid-scifact."""
    table = claims_of_scifact().copy()
    hybrid = kept("hybrid-scifact")
    for method, shown in ((OTHER, "LambdaLoss, fused candidates"), (OTHER + MIXED, "the same + its first stage")):
        one = hybrid.table(method).droplevel("fold").iloc[:, 0]
        table[shown] = one.set_axis(one.index.astype(int)).reindex(table.index)
    return table


def against_fusion(name: str, part: int | None = None, baseline: str = "fused") -> Found:
    table = rankings_of_scifact()
    table = table if part is None else table[table.seen == part]
    return of_queries(table[name] - table[baseline])


def seen_and_unseen() -> str:
    table, body = rankings_of_scifact(), []
    for name in table.columns.drop("seen"):
        means = [mean(table[name]), *(mean(table[name][table.seen == part]) for part in (1, 0))]
        shown = {"fused": "BM25 + cosines, equal shares, no training"}.get(name, name)
        gaps = ["", ""] if name == "fused" else [against_fusion(name, part) for part in (1, 0)]
        body.append([shown, *means, "" if name == "BM25" else against_fusion(name, baseline="BM25"), *gaps])
    head = ["nDCG@10", "300 claims", "196 seen", "104 others", "− BM25", "− fusion, 196 seen", "− fusion, 104 others"]
    return rows(head, body)


TEACHERS = {"judgments, softmax CE": "judgments, softmax CE", "judgments, TwinSigmoid": "judgments, TwinSigmoid"}
TEACHERS |= {"order of the llm, RankNet": "a language model's order, RankNet"}
TEACHERS |= {"ranks of the llm as gains, TwinSigmoid": "its ranks as gains, TwinSigmoid"}
TEACHERS |= {"scores of SPLADE, margin MSE": "SPLADE's scores on other queries, MarginMSE"}


def teachers() -> str:
    one, body = kept("distillation"), []
    judged = one.table("judgments, softmax CE")
    for method, shown in TEACHERS.items():
        table = one.table(method)
        gap = difference(table, judged) if method != "judgments, softmax CE" else None
        gaps = [gap, plain(gap.finds(), 3)] if gap else ["", ""]
        body.append([shown, mean(table), difference(table, one.table(FIRST)), *gaps])
    return rows(["taught by", "nDCG@10", "− BM25", "− judgments, softmax CE", "finds"], body)


def lengths() -> str:
    body = []
    for name, shown in (("lengths", "a fresh head"), ("lengths-started", "BM25")):
        for loss in (DIRECT, OTHER):
            tables = {length: kept(name).table(f"{loss}, {length}") for length in (8, 32, 100)}
            body.append([f"{loss} from {shown}", *map(mean, tables.values()), difference(tables[100], tables[8])])
    return rows(["", "8", "32", "100", "100 − 8"], body)


def costs(*names: str) -> str:
    """Trainings and seconds, as the cells say."""
    body = [[name, kept(name).cells, f"{kept(name).seconds:,.0f}"] for name in names]
    return rows(["values in `configs/evidence/kept`", "training runs", "seconds"], body)
