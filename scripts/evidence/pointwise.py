"""Relative losses against a pointwise one on text: SciFact, a fresh head, all training claims."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from scripts.evidence import documents
from scripts.evidence.documents import MIXES
from scripts.evidence.kept import study, study_values
from scripts.evidence.statistics import Found, difference, mean, plain, table

LOSSES = {
    "SoftmaxCE": "softmax cross-entropy",
    "TwinSigmoid": "twin-sigmoid nDCG",
    "LambdaLoss": "LambdaLoss",
    "MSE": "MSE",
    "BCE": "BCE",
}


def values(loss: str, mix: str, rate: int = 1, passes: int = 1) -> pd.DataFrame:
    """Twin-sigmoid's are those of the study of documents."""
    if loss == "TwinSigmoid":
        return documents.values("fresh", 807, mix)
    return study_values("pointwise", loss=loss, rate=rate, passes=passes, mix=mix)


def against_bce(loss: str, mix: str, rate: int = 1, passes: int = 1) -> Found:
    return difference(values(loss, mix, rate, passes), values("BCE", mix, rate, passes))


def judged(found: Found) -> str:
    return f"{found}, {found.verdict()}"


@table("pointwise")
def pointwise() -> Iterator[list[object]]:
    yield ["loss", *MIXES, *(f"− BCE, {mix}" for mix in MIXES), "finds, alone"]
    for loss, shown in LOSSES.items():
        gaps = [] if loss == "BCE" else [against_bce(loss, mix) for mix in MIXES]
        finds = [plain(gaps[0].finds(), 3)] if gaps else [""] * (len(MIXES) + 1)
        yield [shown, *(mean(values(loss, mix)) for mix in MIXES), *map(judged, gaps), *finds]


@table("pointwise-longer")
def longer() -> Iterator[list[object]]:
    yield ["passes", "rate", "ranking", "softmax cross-entropy", "BCE", "difference", "finds"]
    of = study("pointwise")
    for passes, rate in sorted(set(zip(of.passes, of.rate, strict=True))):
        for mix in MIXES:
            gap = against_bce("SoftmaxCE", mix, rate, passes)
            means = [mean(values(loss, mix, rate, passes)) for loss in ("SoftmaxCE", "BCE")]
            yield [passes, f"x{rate}", mix, *means, judged(gap), plain(gap.finds(), 3)]
