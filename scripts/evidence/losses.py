"""Two losses on six collections: differences, seeds, and what mixing does to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product

from scripts.evidence.kept import FIRST, KEPT, MIXED, NAMES, kept
from scripts.evidence.statistics import MARGIN, Found, difference, holm, mean, plain, pooled, table

FRESH, STARTED = ("scifact", "nfcorpus"), ("dl", "cranfield", "cisi", "vaswani")
SIX = {name: NAMES[name] for name in FRESH + STARTED}
DIRECT, OTHER = "TwinSigmoid", "LambdaLoss"


def losses(name: str, mixed: str = "") -> Found:
    """Twin-sigmoid minus LambdaLoss on a collection."""
    return difference(kept(name).table(DIRECT + mixed), kept(name).table(OTHER + mixed))


def mixing(name: str, loss: str) -> Found:
    return difference(kept(name).table(loss + MIXED), kept(name).table(loss))


def seed_deviation(mixed: str, names: Iterable[str]) -> list[float]:
    return [float(kept(name).table(loss + mixed).mean().std()) for name in names for loss in (OTHER, DIRECT)]


@table("losses-pooled")
def losses_pooled() -> Iterator[list[object]]:
    yield ["", "REML", "tau, I²", "prediction", "Paule-Mandel", f"within {plain(MARGIN, 2)}", "finds"]
    parts = {"six collections": tuple(SIX), "the four from both": STARTED, "the two from a fresh head": FRESH}
    for (what, names), (how, mixed) in product(parts.items(), {"mixed": MIXED, "not mixed": ""}.items()):
        gaps = [losses(name, mixed) for name in names]
        one, other = pooled(gaps), pooled(gaps, "Paule-Mandel")
        spread = [f"{plain(one.tau, 3)}, {one.heterogeneity:.0%}", one.prediction]
        verdict = f"{one.verdict()} (p {plain(one.within())})"
        yield [f"{how}, {what}", one, *spread, other, verdict, plain(one.finds(), 3)]


@table("losses-collections")
def losses_by_collection() -> Iterator[list[object]]:
    yield ["", "queries, seeds", OTHER, DIRECT, "difference", "p, Holm over six", "finds"]
    for mixed in (MIXED, ""):
        gaps = {name: losses(name, mixed) for name in SIX}
        for (name, gap), p in zip(gaps.items(), holm([gap.p for gap in gaps.values()]), strict=True):
            other, direct = (kept(name).table(loss + mixed) for loss in (OTHER, DIRECT))
            cells = [f"{len(direct)}, {direct.shape[1]}", mean(other), mean(direct), gap]
            yield [f"{SIX[name]}{', mixed' * bool(mixed)}", *cells, plain(p, 2), plain(gap.finds(), 3)]


@table("losses-seed-1")
def first_seed() -> Iterator[list[object]]:
    """All losses with seed 1."""
    names = ("scifact", "nfcorpus", "dl")
    yield ["", *(f"{NAMES[name]}{mixed}" for name in names for mixed in ("", " mixed"))]
    order = (FIRST, "softmax CE", "hinge", OTHER, "SmoothI", "NeuralSort", DIRECT)
    for method in (*order, "softmax CE from BM25", "TwinSigmoid from BM25"):
        cells = [_first_mean(name, row) for name in names for row in (method, method + MIXED)]
        yield ["BM25" if method == FIRST else method, *cells]


def _first_mean(name: str, row: str) -> str:
    return mean(kept(name).table(row).iloc[:, 0]) if row in kept(name).methods() else ""


@table("losses-seeds")
def seeds() -> Iterator[list[object]]:
    """Every seed's mean."""
    yield ["", "seeds 1, 2, 3", "deviation", "mixed", "deviation"]
    for name, loss in product([name for name in SIX if name != "cranfield"], (OTHER, DIRECT)):
        means = [kept(name).table(loss + mixed).mean() for mixed in ("", MIXED)]
        cells = [cell for of in means for cell in (", ".join(map(plain, of)), plain(of.std()))]
        yield [f"{SIX[name]}, {loss}", *cells]


@table("mixing")
def mixing_by_collection() -> Iterator[list[object]]:
    """What mixing does to each trained model."""
    yield ["", "mixed − alone", "alone − BM25", "mixed − BM25"]
    for name, loss in product(SIX, (OTHER, DIRECT)):
        gaps = [difference(kept(name).table(loss + mixed), kept(name).table(FIRST)) for mixed in ("", MIXED)]
        yield [f"{SIX[name]}, {loss}", mixing(name, loss), *gaps]


def mixing_counts() -> dict[str, Counter[str]]:
    """Trainings whose mean of the test queries gained or lost by the share that validation chose."""
    fresh = {"scifact", "nfcorpus", "lengths", "hybrid-scifact"}
    counts = {"fresh": Counter[str](), "started": Counter[str]()}
    for path in KEPT.glob("*.jsonl.xz"):
        name = path.name.removesuffix(".jsonl.xz")
        methods = kept(name).methods()
        for method in (row for row in methods if row + MIXED in methods):
            alone, mixed = (kept(name).table(row) for row in (method, method + MIXED))
            start = "fresh" if name in fresh and " from " not in method else "started"
            for gain in (mixed - alone).dropna(axis=1, how="all").sum():
                counts[start]["gained" if gain > 1e-9 else "lost" if gain < -1e-9 else "stayed"] += 1
    return counts


@table("mixing-counts")
def counts_table() -> Iterator[list[object]]:
    yield ["training runs", "gained by mixing", "lost", "stayed"]
    shown = {"fresh": "from a fresh head", "started": "from the first stage, or both"}
    for start, count in mixing_counts().items():
        yield [shown[start], *(count[what] for what in ("gained", "lost", "stayed"))]
