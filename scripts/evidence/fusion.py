"""First stages fused without training, and what training adds to them."""

from __future__ import annotations

import functools

import pandas as pd

from scripts.evidence.kept import FIRST, KEPT, MIXED, kept
from scripts.evidence.losses import DIRECT, OTHER, SIX, STARTED
from scripts.evidence.statistics import Found, Pool, difference, mean, of_queries, plain, pooled, rows

NAMES = {"scifact": "SciFact", "nfcorpus": "NFCorpus", "dl19": "DL 2019", "cranfield": "Cranfield", "cisi": "CISI"}
NAMES |= {"vaswani": "Vaswani", "demo": "demo"}
STARTS = {"dl": ("dl19", 100), "cranfield": ("cranfield", 20), "cisi": ("cisi", 20), "vaswani": ("vaswani", 20)}
"""Where the trainings that start at both first stages start: collection and depth."""


@functools.cache
def untrained() -> dict[tuple[str, int], pd.DataFrame]:
    """nDCG@10 ``[query, share of the cosines]``, by collection and depth."""
    table = pd.read_csv(
        KEPT / "untrained.tsv.xz", sep="\t", dtype={"query": str}, index_col=["collection", "depth", "query"]
    )
    table.columns = table.columns.astype(float)
    return {key: of.droplevel([0, 1]) for key, of in table.groupby(level=[0, 1])}


UNTRAINED = [name for name in NAMES if any(name == there for there, _ in untrained())]


def mixture(name: str, share: float, depth: int | None = None) -> pd.Series:
    """Values per query of BM25 and the cosines in a share; 0 is BM25."""
    return untrained()[name, depth or max(deep for there, deep in untrained() if there == name)][share]


@functools.cache
def share_of_others(name: str) -> float:
    """The share of the cosines that is best on average of the other collections."""
    others = [other for other in UNTRAINED if other != name]
    shares = next(iter(untrained().values())).columns
    return float(max(shares, key=lambda share: sum(mixture(other, share).mean() for other in others)))


def fusion(name: str, against: float, share: float = 0.5) -> Found:
    return of_queries(mixture(name, share) - mixture(name, against))


def fusion_by_collection() -> str:
    """BM25, cosines and both."""
    body = []
    for name in UNTRAINED:
        share = share_of_others(name)
        means = [mean(mixture(name, one)) for one in (0, 1, 0.5, share)]
        gaps = [fusion(name, against, which) for which in (0.5, share) for against in (0, 1)]
        body.append([NAMES[name], len(mixture(name, 0)), *means[:3], f"{means[3]} ({plain(share, 2)})", *gaps])
    gaps = [fusion_pooled(against, tuned) for tuned in (False, True) for against in (0, 1)]
    body.append(["pooled", *[""] * 5, *gaps])
    head = ["", "queries", "BM25", "cosines", "equal shares", "others' best share"]
    return rows([*head, *(f"{which} − {what}" for which in ("equal", "others'") for what in ("BM25", "cosines"))], body)


def fusion_pooled(against: float, by_others: bool = False) -> Pool:
    return pooled([fusion(name, against, share_of_others(name) if by_others else 0.5) for name in UNTRAINED])


def started(name: str, loss: str) -> Found:
    """A training against where it started: equal shares of BM25 and the cosines."""
    table, (collection, depth) = kept(name).table(loss), STARTS[name]
    start = mixture(collection, 0.5, depth).rename(0).to_frame()
    start.index = table.index[[list(table.index.get_level_values("query")).index(query) for query in start.index]]
    return difference(table, start)


def started_by_collection() -> str:
    body = []
    for name, (collection, depth) in STARTS.items():
        start = mean(mixture(collection, 0.5, depth))
        body.append([SIX[name], start, *(started(name, loss) for loss in (OTHER, DIRECT))])
    body.append(["pooled", "", *map(started_pooled, (OTHER, DIRECT))])
    return rows(["", "start: equal shares", f"{OTHER} − start", f"{DIRECT} − start"], body)


def started_pooled(loss: str) -> Pool:
    return pooled([started(name, loss) for name in STARTED])


def hybrid_nfcorpus() -> str:
    one = kept("hybrid-nfcorpus")
    first = one.table(FIRST)
    gap = difference(first, kept("nfcorpus").table(FIRST))
    body = [["BM25 and cosines by reciprocal ranks", mean(first), "", gap]]
    for loss in (OTHER, DIRECT):
        for mixed in ("", MIXED):
            table = one.table(f"{loss} from both{mixed}")
            body.append([f"{loss}{', mixed with them' * bool(mixed)}", mean(table), difference(table, first), ""])
    return rows(["", "nDCG@10", "− reciprocal ranks", "− BM25"], body)
