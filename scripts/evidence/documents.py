"""What training on documents alone is worth, and how many judged claims it replaces: SciFact."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from scripts.evidence.kept import claims_of_scifact, study, study_values
from scripts.evidence.statistics import Found, difference, mean, table

MIXES = ("alone", "+ BM25", "+ BM25 + cosines")
BELOW = {"alone": "BM25", "+ BM25": "BM25", "+ BM25 + cosines": "BM25 + cosines"}
"""What each is held against: what it has without the trained model."""
STARTS = {"fresh": "a fresh head", "documents": "documents alone"}


def values(start: str, claims: int, mix: str) -> pd.DataFrame:
    return study_values("documents", start=start, claims=claims, mix=mix)


def cells() -> list[tuple[str, int]]:
    """Starts and judged claims that were trained, few claims first."""
    of = study("documents")
    trained = set(zip(of.start, of.claims, strict=True))
    return [(start, claims) for claims in sorted(set(of.claims)) for start in STARTS if (start, claims) in trained]


def gain(start: str, claims: int, mix: str, seen: bool | None = None) -> Found:
    """A ranking against what it has without the trained model; over all claims, those seen, or the others."""
    trained, below = values(start, claims, mix), values("", 0, BELOW[mix])
    if seen is not None:
        trained = trained[trained.index.get_level_values("query").map(claims_of_scifact().seen) == int(seen)]
    return difference(trained, below)


def against_fresh(claims: int, mix: str) -> Found:
    """Claims from documents alone against the same from a fresh head."""
    return difference(*(values(start, claims, mix) for start in ("documents", "fresh")))


@table("documents")
def means() -> Iterator[list[object]]:
    yield ["judged claims", "start", "seeds", *MIXES, "+ BM25 − BM25", "all three − BM25 + cosines"]
    for start, claims in cells():
        tables = [values(start, claims, mix) for mix in MIXES]
        gaps = [gain(start, claims, mix) for mix in MIXES[1:]]
        yield [f"{claims:,}", STARTS[start], tables[0].shape[1], *map(mean, tables), *gaps]
    yield ["", "no training", "", "", *(mean(values("", 0, name)) for name in ("BM25", "BM25 + cosines")), "", ""]


@table("documents-fresh")
def starts() -> Iterator[list[object]]:
    yield ["judged claims", *MIXES]
    for start, claims in cells():
        if start == "fresh":
            yield [f"{claims:,}", *(against_fresh(claims, mix) for mix in MIXES)]


@table("documents-seen")
def seen_and_unseen() -> Iterator[list[object]]:
    """What the trained model adds to BM25 and the cosines."""
    yield ["judged claims", "start", "196 with a seen abstract", "104 others"]
    for start, claims in cells():
        yield [f"{claims:,}", STARTS[start], *(gain(start, claims, MIXES[-1], seen) for seen in (True, False))]
