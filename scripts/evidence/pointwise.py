"""Relative losses against a pointwise one on text: SciFact, a fresh head, all training claims."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from scripts.evidence import documents
from scripts.evidence.documents import MIXES
from scripts.evidence.kept import claims_of_scifact, study_values
from scripts.evidence.statistics import Found, difference, mean, plain, table

LOSSES = {
    "SoftmaxCE": "softmax cross-entropy",
    "TwinSigmoid": "twin-sigmoid nDCG",
    "LambdaLoss": "LambdaLoss",
    "MSE": "MSE",
    "BCE-prior": "BCE, prior .1",
    "BCE": "BCE",
}
SETTINGS = ((1, 1), (1, 4), (3, 1))
"""Passes, and times the ladder's rates."""


def values(loss: str, mix: str, passes: int = 1, rate: int = 1) -> pd.DataFrame:
    """Twin-sigmoid's at the ladder's rate are those of the study of documents."""
    if loss == "TwinSigmoid" and rate == 1:
        return documents.values("fresh", 807, mix)
    return study_values("pointwise", loss=loss, rate=rate, passes=passes, mix=mix)


def against_bce(loss: str, mix: str, passes: int = 1, rate: int = 1) -> Found:
    return difference(values(loss, mix, passes, rate), values("BCE", mix, passes, rate))


def against_mse(loss: str, mix: str) -> Found:
    return difference(values(loss, mix), values("MSE", mix))


def by_prior(mix: str) -> Found:
    """BCE with a prior of .1 against BCE without."""
    return against_bce("BCE-prior", mix)


def against_prior(mix: str) -> Found:
    """Softmax cross-entropy against BCE with a prior of .1."""
    return difference(values("SoftmaxCE", mix), values("BCE-prior", mix))


def by_rate(loss: str, mix: str) -> Found:
    """Four times the rate against the ladder's, in one pass."""
    return difference(values(loss, mix, 1, 4), values(loss, mix))


def by_passes(loss: str, mix: str) -> Found:
    """Three passes against one."""
    return difference(values(loss, mix, 3), values(loss, mix))


def after_three(loss: str, mix: str, seen: bool | None = None) -> Found:
    """Three passes against the fusion that nothing trained; over all claims, those seen, or the others."""
    trained = values(loss, mix, 3)
    if seen is not None:
        trained = trained[trained.index.get_level_values("query").map(claims_of_scifact().seen) == int(seen)]
    return difference(trained, documents.values("", 0, "BM25 + cosines"))


def judged(found: Found) -> str:
    return f"{found}, {found.verdict()}"


@table("pointwise")
def pointwise() -> Iterator[list[object]]:
    yield ["loss", *MIXES, *(f"− BCE, {mix}" for mix in MIXES), "finds, alone"]
    for loss, shown in LOSSES.items():
        gaps = [] if loss == "BCE" else [against_bce(loss, mix) for mix in MIXES]
        finds = [plain(gaps[0].finds(), 3)] if gaps else [""] * (len(MIXES) + 1)
        yield [shown, *(mean(values(loss, mix)) for mix in MIXES), *map(judged, gaps), *finds]


@table("pointwise-mse")
def mse() -> Iterator[list[object]]:
    yield ["loss", *(f"− MSE, {mix}" for mix in MIXES), "finds, alone"]
    for loss in ("SoftmaxCE", "TwinSigmoid", "LambdaLoss"):
        gaps = [against_mse(loss, mix) for mix in MIXES]
        yield [LOSSES[loss], *map(judged, gaps), plain(gaps[0].finds(), 3)]


@table("pointwise-longer")
def longer() -> Iterator[list[object]]:
    yield ["passes", "rate", "ranking", "softmax cross-entropy", "BCE", "difference", "finds"]
    for passes, rate in SETTINGS:
        for mix in MIXES:
            gap = against_bce("SoftmaxCE", mix, passes, rate)
            means = [mean(values(loss, mix, passes, rate)) for loss in ("SoftmaxCE", "BCE")]
            yield [passes, f"× {rate}", mix, *means, judged(gap), plain(gap.finds(), 3)]


@table("pointwise-rate")
def rates() -> Iterator[list[object]]:
    yield ["loss", "ranking", "× 4", "× 4 − × 1", "three passes − × 4"]
    for loss in ("SoftmaxCE", "TwinSigmoid", "BCE"):
        for mix in MIXES:
            faster = values(loss, mix, 1, 4)
            longer = "" if loss == "TwinSigmoid" else difference(values(loss, mix, 3), faster)
            yield [LOSSES[loss], mix, mean(faster), judged(by_rate(loss, mix)), longer]


@table("pointwise-passes")
def passes_table() -> Iterator[list[object]]:
    yield ["loss", "ranking", "three passes − one", "three − BM25 + cosines", "196 with a seen abstract", "104 others"]
    for loss in ("SoftmaxCE", "BCE"):
        for mix in MIXES:
            beyond = [after_three(loss, mix, seen) for seen in (None, True, False)]
            yield [LOSSES[loss], mix, by_passes(loss, mix), *beyond]
