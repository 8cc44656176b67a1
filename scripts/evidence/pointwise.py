"""Relative losses against a pointwise one on text: SciFact, a fresh head, all training claims once."""

from __future__ import annotations

import functools

import pandas as pd

from scripts.evidence import documents
from scripts.evidence.documents import MIXES
from scripts.evidence.kept import KEPT
from scripts.evidence.statistics import Found, difference, mean, plain, rows

NAMES = {
    "SoftmaxCE": "softmax cross-entropy",
    "LambdaLoss": "LambdaLoss",
    "TwinSigmoid": "twin-sigmoid nDCG",
    "MSE": "MSE",
    "BCE": "BCE",
}


@functools.cache
def table() -> pd.DataFrame:
    """A row per loss, mix and claim."""
    kept = pd.read_csv(KEPT / "pointwise.tsv.xz", sep="\t", dtype={"query": str}, na_filter=False)
    return kept.assign(fold="")


def values(loss: str, mix: str) -> pd.DataFrame:
    """nDCG@10 ``[fold and claim, seed]``; twin-sigmoid's are those of the study of documents."""
    if loss == "TwinSigmoid":
        return documents.values("fresh", 807, mix)
    of = table()
    return of[(of.loss == loss) & (of.mix == mix)].pivot(index=["fold", "query"], columns="seed", values="value")


def against_bce(loss: str, mix: str) -> Found:
    return difference(values(loss, mix), values("BCE", mix))


def pointwise() -> str:
    body = []
    for loss in (name for name in NAMES if name in {"TwinSigmoid", *table().loss}):
        gaps = [against_bce(loss, mix) for mix in MIXES] if loss != "BCE" else []
        found = [f"{gap}, {gap.verdict()}" for gap in gaps] or [""] * len(MIXES)
        body.append(
            [
                NAMES[loss],
                *(mean(values(loss, mix)) for mix in MIXES),
                *found,
                plain(gaps[0].finds(), 3) if gaps else "",
            ]
        )
    return rows(["loss", *MIXES, *(f"− BCE, {mix}" for mix in MIXES), "finds, alone"], body)
