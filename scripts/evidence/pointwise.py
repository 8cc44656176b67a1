"""Relative losses against a pointwise one on text: SciFact, a fresh head, all training claims once."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from scripts.evidence import documents
from scripts.evidence.documents import MIXES
from scripts.evidence.kept import study_values
from scripts.evidence.statistics import Found, difference, mean, plain, table


def values(loss: str, mix: str) -> pd.DataFrame:
    """Twin-sigmoid's are those of the study of documents."""
    if loss == "TwinSigmoid":
        return documents.values("fresh", 807, mix)
    return study_values("pointwise", loss=loss, rate=1, passes=1, mix=mix)


def against_bce(loss: str, mix: str) -> Found:
    return difference(values(loss, mix), values("BCE", mix))


@table("pointwise")
def pointwise() -> Iterator[list[object]]:
    yield ["loss", *MIXES, *(f"− BCE, {mix}" for mix in MIXES), "finds, alone"]
    for loss, shown in {"SoftmaxCE": "softmax cross-entropy", "TwinSigmoid": "twin-sigmoid nDCG"}.items():
        gaps = [against_bce(loss, mix) for mix in MIXES]
        verdicts = [f"{gap}, {gap.verdict()}" for gap in gaps]
        yield [shown, *(mean(values(loss, mix)) for mix in MIXES), *verdicts, plain(gaps[0].finds(), 3)]
    yield ["BCE", *(mean(values("BCE", mix)) for mix in MIXES), *[""] * (len(MIXES) + 1)]
