"""What training on documents alone is worth, and how many judged claims it replaces: SciFact."""

from __future__ import annotations

import functools

import pandas as pd

from scripts.evidence.kept import KEPT, claims_of_scifact
from scripts.evidence.statistics import Found, difference, mean, rows

MIXES = ("alone", "+ BM25", "+ BM25 + cosines")
BELOW = {"alone": "BM25", "+ BM25": "BM25", "+ BM25 + cosines": "BM25 + cosines"}
"""What each is held against: what it has without the trained model."""
STARTS = {"fresh": "a fresh head", "documents": "documents alone"}


@functools.cache
def table() -> pd.DataFrame:
    """A row per ranking and claim."""
    kept = pd.read_csv(KEPT / "documents.tsv.xz", sep="\t", dtype={"query": str}, na_filter=False)
    return kept.assign(fold="")


def values(start: str, claims: int, mix: str) -> pd.DataFrame:
    """nDCG@10 ``[fold and claim, seed]``; what was not trained has the seed 0."""
    of = table()
    of = of[(of.start == start) & (of.claims == claims) & (of.mix == mix)]
    return of.pivot(index=["fold", "query"], columns="seed", values="value")


def cells() -> list[tuple[str, int]]:
    """Starts and judged claims that were trained, few claims first."""
    of = table()
    found = of[of.start != ""].drop_duplicates(["start", "claims"])
    order = {name: place for place, name in enumerate(STARTS)}
    return sorted(zip(found.start, found.claims, strict=True), key=lambda cell: (cell[1], order[cell[0]]))


def gain(start: str, claims: int, mix: str, seen: bool | None = None) -> Found:
    """A ranking against what it has without the trained model; over all claims, those seen, or the others."""
    found, below = values(start, claims, mix), values("", 0, BELOW[mix])
    if seen is not None:
        which = claims_of_scifact().seen.set_axis(claims_of_scifact().index.astype(str))
        some = found.index.get_level_values("query").map(which) == int(seen)
        found = found[some]
    return difference(found, below.loc[found.index])


def documents_means() -> str:
    body = []
    for start, claims in cells():
        means = [mean(values(start, claims, mix)) for mix in MIXES]
        gaps = [gain(start, claims, mix) for mix in MIXES[1:]]
        body.append([f"{claims:,}", STARTS[start], values(start, claims, "alone").shape[1], *means, *gaps])
    below = [mean(values("", 0, name)) for name in ("BM25", "BM25 + cosines")]
    body.append(["", "no training", "", "", *below, "", ""])
    head = ["judged claims", "start", "seeds", *MIXES, "+ BM25 − BM25", "all three − BM25 + cosines"]
    return rows(head, body)


def documents_against_fresh() -> str:
    """The same claims, from documents alone and from a fresh head."""
    both = [claims for start, claims in cells() if start == "fresh" and ("documents", claims) in cells()]
    body = [[f"{claims:,}", *(against_fresh(claims, mix) for mix in MIXES)] for claims in both]
    return rows(["judged claims", *MIXES], body)


def against_fresh(claims: int, mix: str) -> Found:
    return difference(*(values(start, claims, mix) for start in ("documents", "fresh")))


def documents_seen() -> str:
    """What the trained model adds to BM25 and the cosines: claims with a seen abstract, and the others."""
    body = [
        [f"{claims:,}", STARTS[start], *(gain(start, claims, MIXES[-1], seen) for seen in (True, False))]
        for start, claims in cells()
    ]
    return rows(["judged claims", "start", "196 with a seen abstract", "104 others"], body)
