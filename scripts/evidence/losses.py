"""Two losses on six collections: differences, seeds, and what mixing does to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import product

from scripts.evidence.kept import FIRST, KEPT, MIXED, kept
from scripts.evidence.statistics import MARGIN, Found, difference, holm, mean, plain, pooled, rows

SIX = {"scifact": "SciFact", "nfcorpus": "NFCorpus", "dl": "DL 2019", "cranfield": "Cranfield", "cisi": "CISI"}
SIX |= {"vaswani": "Vaswani"}
FRESH, STARTED = ("scifact", "nfcorpus"), ("dl", "cranfield", "cisi", "vaswani")
DIRECT, OTHER = "TwinSigmoid", "LambdaLoss"


def losses(name: str, mixed: str = "") -> Found:
    """Twin-sigmoid minus LambdaLoss on a collection."""
    return difference(kept(name).table(DIRECT + mixed), kept(name).table(OTHER + mixed))


def losses_pooled() -> str:
    """Twin-sigmoid against LambdaLoss on several collections together."""
    parts = {"six collections": tuple(SIX), "the four from both": STARTED, "the two from a fresh head": FRESH}
    body = []
    for (what, names), mixed in product(parts.items(), (MIXED, "")):
        found = [losses(name, mixed) for name in names]
        one, other = pooled(found), pooled(found, "Paule-Mandel")
        spread = [f"{plain(one.tau, 3)}, {one.heterogeneity:.0%}", one.prediction]
        verdict = f"{one.verdict()} (p {plain(one.within())})"
        what = f"{'mixed' if mixed else 'not mixed'}, {what}"
        body.append([what, one, *spread, other, verdict, plain(one.finds(), 3)])
    return rows(["", "REML", "tau, I²", "prediction", "Paule-Mandel", f"within {plain(MARGIN, 2)}", "finds"], body)


def losses_by_collection() -> str:
    """The same on each."""
    body = []
    for mixed in (MIXED, ""):
        found = {name: losses(name, mixed) for name in SIX}
        for (name, one), p in zip(found.items(), holm([one.p for one in found.values()]), strict=True):
            table = kept(name).table(DIRECT + mixed)
            cells = [f"{len(table)}, {table.shape[1]}", mean(kept(name).table(OTHER + mixed)), mean(table), one]
            body.append([f"{SIX[name]}{', mixed' * bool(mixed)}", *cells, plain(p, 2), plain(one.finds(), 3)])
    return rows(["", "queries, seeds", OTHER, DIRECT, "difference", "p, Holm over six", "finds"], body)


def first_seed() -> str:
    """All losses with seed 1."""
    names = {"scifact": "SciFact", "nfcorpus": "NFCorpus", "dl": "DL 2019"}
    order = (FIRST, "softmax CE", "hinge", OTHER, "SmoothI", "NeuralSort", DIRECT)
    body = []
    for method in (*order, "softmax CE from BM25", "TwinSigmoid from BM25"):
        cells = []
        for name in names:
            for row in (method, method + MIXED):
                there = row in kept(name).methods()
                cells.append(plain(float(kept(name).table(row).iloc[:, 0].mean())) if there else "")
        body.append(["BM25" if method == FIRST else method, *cells])
    return rows(["", *(f"{name}{mixed}" for name in names.values() for mixed in ("", " mixed"))], body)


def seeds() -> str:
    """Every seed's mean."""
    body = []
    for name in (name for name in SIX if name != "cranfield"):
        for loss in (OTHER, DIRECT):
            cells = []
            for mixed in ("", MIXED):
                means = kept(name).table(loss + mixed).mean()
                cells += [", ".join(map(plain, means)), plain(float(means.std()))]
            body.append([f"{SIX[name]}, {loss}", *cells])
    return rows(["", "seeds 1, 2, 3", "deviation", "mixed", "deviation"], body)


def seed_deviation(mixed: str, names: Iterable[str]) -> list[float]:
    return [float(kept(name).table(loss + mixed).mean().std()) for name in names for loss in (OTHER, DIRECT)]


def mixing(name: str, loss: str) -> Found:
    return difference(kept(name).table(loss + MIXED), kept(name).table(loss))


def mixing_by_collection() -> str:
    """What mixing does to each trained model."""
    body = []
    for name in SIX:
        for loss in (OTHER, DIRECT):
            gaps = [difference(kept(name).table(loss + mixed), kept(name).table(FIRST)) for mixed in ("", MIXED)]
            body.append([f"{SIX[name]}, {loss}", mixing(name, loss), *gaps])
    return rows(["", "mixed − alone", "alone − BM25", "mixed − BM25"], body)


def mixing_counts() -> dict[str, Counter[str]]:
    """Trainings whose mean of the test queries gained or lost by the share that validation chose."""
    fresh = {"scifact", "nfcorpus", "lengths", "hybrid-scifact"}
    counts = {"fresh": Counter[str](), "started": Counter[str]()}
    for path in sorted(KEPT.glob("*.jsonl.xz")):
        name = path.name.removesuffix(".jsonl.xz")
        if name.startswith("matrix"):
            continue
        for method in kept(name).methods():
            if method + MIXED not in kept(name).methods():
                continue
            alone, mixed = (kept(name).table(row) for row in (method, method + MIXED))
            start = "fresh" if name in fresh and " from " not in method else "started"
            for gain in (mixed - alone).dropna(axis=1, how="all").sum():
                counts[start]["gained" if gain > 1e-9 else "lost" if gain < -1e-9 else "stayed"] += 1
    return counts


def counts_table() -> str:
    counts = mixing_counts()
    shown = {"fresh": "from a fresh head", "started": "from the first stage, or both"}
    body = [[shown[start], *(of[what] for what in ("gained", "lost", "stayed"))] for start, of in counts.items()]
    return rows(["training runs", "gained by mixing", "lost", "stayed"], body)
