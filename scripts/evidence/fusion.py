"""First stages fused without training, and what training adds to them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import product

import pandas as pd

from scripts.evidence.kept import FIRST, MIXED, NAMES, kept, study
from scripts.evidence.losses import DIRECT, OTHER, SIX, STARTED
from scripts.evidence.statistics import Found, Pool, difference, mean, of_queries, plain, pooled, table

UNTRAINED = {"dl19": 100, "cranfield": 50, "cisi": 50, "vaswani": 50, "demo": 50}
"""Candidates of a query, by collection."""
STARTS = {"dl": ("dl19", 100), "cranfield": ("cranfield", 20), "cisi": ("cisi", 20), "vaswani": ("vaswani", 20)}
"""Where the trainings that start at both first stages start: collection and depth."""


@functools.cache
def mixture(name: str, share: float, depth: int | None = None) -> pd.Series:
    """Values per query of BM25 and the cosines in a share; 0 is BM25."""
    of = study("untrained")
    of = of[(of.collection == name) & (of.depth == (depth or UNTRAINED[name]))]
    return of.set_index("query")[f"{share:.2f}"]


@functools.cache
def share_of_others(name: str) -> float:
    """The share of the cosines that is best on average of the other collections."""
    others = [other for other in UNTRAINED if other != name]
    return max((n / 20 for n in range(21)), key=lambda share: sum(mixture(other, share).mean() for other in others))


def fusion(name: str, against: float, share: float = 0.5) -> Found:
    return of_queries(mixture(name, share) - mixture(name, against))


def fusion_pooled(against: float, by_others: bool = False) -> Pool:
    return pooled([fusion(name, against, share_of_others(name) if by_others else 0.5) for name in UNTRAINED])


@table("fusion")
def fusion_by_collection() -> Iterator[list[object]]:
    gains = [f"{which} − {what}" for which, what in product(("equal", "others'"), ("BM25", "cosines"))]
    yield ["", "queries", "BM25", "cosines", "equal shares", "others' best share", *gains]
    for name in UNTRAINED:
        share = share_of_others(name)
        *means, by_others = (mean(mixture(name, one)) for one in (0, 1, 0.5, share))
        gaps = [fusion(name, against, which) for which, against in product((0.5, share), (0, 1))]
        yield [NAMES[name], len(mixture(name, 0)), *means, f"{by_others} ({plain(share, 2)})", *gaps]
    yield ["pooled", *[""] * 5, *(fusion_pooled(against, tuned) for tuned, against in product((False, True), (0, 1)))]


def started(name: str, loss: str) -> Found:
    """A training against where it started: equal shares of BM25 and the cosines."""
    trained, (collection, depth) = kept(name).table(loss), STARTS[name]
    start = mixture(collection, 0.5, depth).reindex(trained.index.get_level_values("query"))
    return difference(trained, start.set_axis(trained.index).to_frame(0))


def started_pooled(loss: str) -> Pool:
    return pooled([started(name, loss) for name in STARTED])


@table("started")
def started_by_collection() -> Iterator[list[object]]:
    yield ["", "start: equal shares", f"{OTHER} − start", f"{DIRECT} − start"]
    for name, (collection, depth) in STARTS.items():
        yield [SIX[name], mean(mixture(collection, 0.5, depth)), *(started(name, loss) for loss in (OTHER, DIRECT))]
    yield ["pooled", "", *map(started_pooled, (OTHER, DIRECT))]


@table("hybrid-nfcorpus")
def hybrid_nfcorpus() -> Iterator[list[object]]:
    yield ["", "nDCG@10", "− reciprocal ranks", "− BM25"]
    hybrid = kept("hybrid-nfcorpus")
    first = hybrid.table(FIRST)
    yield ["BM25 and cosines by reciprocal ranks", mean(first), "", difference(first, kept("nfcorpus").table(FIRST))]
    for loss, mixed in product((OTHER, DIRECT), ("", MIXED)):
        trained = hybrid.table(f"{loss} from both{mixed}")
        yield [f"{loss}{', mixed with them' * bool(mixed)}", mean(trained), difference(trained, first), ""]
