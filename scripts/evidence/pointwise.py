"""Relative losses against pointwise ones on text: SciFact and NFCorpus, a fresh head, 807 queries."""

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


def values(loss: str, mix: str, passes: int = 1, rate: int = 1, seeds: tuple[int, ...] = (1,)) -> pd.DataFrame:
    """SciFact's. Twin-sigmoid's first at the ladder's rate, in one pass, are those of the study of documents."""
    found = study_values("pointwise", loss=loss, rate=rate, passes=passes, mix=mix)
    if loss == "TwinSigmoid" and (rate, passes) == (1, 1):
        found = documents.values("fresh", 807, mix).join(found)
    return found[[*seeds]]


def nfcorpus(loss: str, mix: str) -> pd.DataFrame:
    return study_values("pointwise-nfcorpus", loss=loss, mix=mix)


def nfcorpus_gap(loss: str, against: str, mix: str) -> Found:
    return difference(nfcorpus(loss, mix), nfcorpus(against, mix))


def direct(on: str, mix: str) -> Found:
    """Twin-sigmoid against softmax cross-entropy, in one pass."""
    of = {"SciFact": values, "NFCorpus": nfcorpus}[on]
    return difference(of("TwinSigmoid", mix), of("SoftmaxCE", mix))


def against_bce(loss: str, mix: str, passes: int = 1, rate: int = 1) -> Found:
    return difference(values(loss, mix, passes, rate), values("BCE", mix, passes, rate))


def against_mse(loss: str, mix: str, seed: int = 1) -> Found:
    return difference(*(values(one, mix, seeds=(seed,)) for one in (loss, "MSE")))


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


def from_documents(mix: str) -> pd.DataFrame:
    """Three passes of twin-sigmoid from the model that documents alone made."""
    return study_values("documents-passes", start="documents", claims=807, mix=mix)


def more_from_documents(mix: str) -> Found:
    """Against one pass from there."""
    return difference(from_documents(mix), documents.values("documents", 807, mix))


def documents_or_fresh(mix: str) -> Found:
    """Against three passes from a fresh head."""
    return difference(from_documents(mix), values("TwinSigmoid", mix, 3))


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
            longer = difference(values(loss, mix, 3), faster)
            yield [LOSSES[loss], mix, mean(faster), judged(by_rate(loss, mix)), longer]


@table("pointwise-passes")
def passes_table() -> Iterator[list[object]]:
    yield ["loss", "ranking", "three passes − one", "three − BM25 + cosines", "196 with a seen abstract", "104 others"]
    for loss in ("SoftmaxCE", "TwinSigmoid", "BCE"):
        for mix in MIXES:
            beyond = [after_three(loss, mix, seen) for seen in (None, True, False)]
            yield [LOSSES[loss], mix, by_passes(loss, mix), *beyond]


@table("pointwise-three")
def three() -> Iterator[list[object]]:
    yield ["ranking", "twin-sigmoid, three passes", "− one pass", "finds", "− softmax cross-entropy, three passes"]
    for mix in MIXES:
        gap = by_passes("TwinSigmoid", mix)
        other = difference(values("TwinSigmoid", mix, 3), values("SoftmaxCE", mix, 3))
        yield [mix, mean(values("TwinSigmoid", mix, 3)), judged(gap), plain(gap.finds(), 3), judged(other)]


@table("pointwise-documents")
def three_from_documents() -> Iterator[list[object]]:
    yield ["ranking", "three passes from documents", "− one from there", "finds", "− three from a fresh head", "finds"]
    for mix in MIXES:
        gap, other = more_from_documents(mix), documents_or_fresh(mix)
        finds = [plain(found.finds(), 3) for found in (gap, other)]
        yield [mix, mean(from_documents(mix)), judged(gap), finds[0], judged(other), finds[1]]


@table("pointwise-nfcorpus")
def on_nfcorpus() -> Iterator[list[object]]:
    yield ["loss", *MIXES, *(f"− BCE, prior .1, {mix}" for mix in MIXES), "finds, alone"]
    for loss in ("SoftmaxCE", "TwinSigmoid", "MSE", "BCE", "BCE-prior"):
        gaps = [nfcorpus_gap(loss, "BCE-prior", mix) for mix in MIXES] if loss != "BCE-prior" else []
        finds = [plain(gaps[0].finds(), 3)] if gaps else [""] * (len(MIXES) + 1)
        yield [LOSSES[loss], *(mean(nfcorpus(loss, mix)) for mix in MIXES), *map(judged, gaps), *finds]
    alone = [mean(nfcorpus("", mix)) for mix in ("cosines", "BM25", "BM25 + cosines")]
    yield ["no training: cosines, BM25, both", *alone, *[""] * (len(MIXES) + 1)]


@table("pointwise-nfcorpus-mse")
def mse_on_nfcorpus() -> Iterator[list[object]]:
    yield ["loss", *(f"− MSE, {mix}" for mix in MIXES), "finds, + BM25"]
    for loss in ("SoftmaxCE", "TwinSigmoid", "BCE-prior"):
        gaps = [nfcorpus_gap(loss, "MSE", mix) for mix in MIXES]
        yield [LOSSES[loss], *map(judged, gaps), plain(gaps[1].finds(), 3)]


@table("pointwise-seeds")
def second_seed() -> Iterator[list[object]]:
    yield ["ranking", "seed", "twin-sigmoid", "MSE", "difference", "finds"]
    for mix in MIXES:
        for seeds in ((1,), (2,), (1, 2)):
            pair = [values(loss, mix, seeds=seeds) for loss in ("TwinSigmoid", "MSE")]
            gap = difference(*pair)
            shown = "both" if len(seeds) > 1 else seeds[0]
            yield [mix, shown, *map(mean, pair), judged(gap), plain(gap.finds(), 3)]
