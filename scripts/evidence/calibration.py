"""Scores as probabilities: how good they are on lists that they were not fitted to, and which promises are kept."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import beta

from scripts.evidence.kept import KEPT
from scripts.evidence.statistics import plain, table

PRECISIONS = (0.5, 0.8, 0.9)
NFCORPUS = "NFCorpus's test"
FITS = [
    ("BM25", "NFCorpus's training", NFCORPUS),
    ("BM25", "NFCorpus's development", NFCORPUS),
    ("BM25", "SciFact's training", "SciFact's test"),
    ("MiniLM", "NFCorpus's development", NFCORPUS),
    ("LightGBM", "MQ2008's validation", "MQ2008's test"),
]
ELSEWHERE = [
    ("BM25", "NFCorpus's training", "SciFact's test"),
    ("BM25", "SciFact's training", NFCORPUS),
    ("MiniLM", "NFCorpus's development", "SciFact's test"),
]
"""Fitted on one collection, measured on another."""


@functools.cache
def candidates(ranker: str, lists: str) -> pd.DataFrame:
    """Judged candidates of lists, ``query``, ``score`` and ``relevant``."""
    of = pd.read_csv(KEPT / "scores.tsv.xz", sep="\t", dtype={"query": str})
    return of[(of.ranker == ranker) & (of.lists == lists)].reset_index(drop=True)


def log_loss(logits: np.ndarray, relevant: np.ndarray) -> float:
    return float(np.mean(np.where(relevant, np.logaddexp(0, -logits), np.logaddexp(0, logits))))


@functools.cache
def fitted(ranker: str, lists: str) -> tuple[float, float]:
    """The a and b of σ(a s + b), by maximum likelihood."""
    of = candidates(ranker, lists)
    scores, relevant = of.score.to_numpy(), of.relevant.to_numpy()
    center, spread = scores.mean(), scores.std()
    z = (scores - center) / spread

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        off = expit(x[0] * z + x[1]) - relevant
        return log_loss(x[0] * z + x[1], relevant), np.array([np.mean(off * z), np.mean(off)])

    slope, constant = minimize(loss, np.zeros(2), jac=True, tol=1e-12).x
    return float(slope / spread), float(constant - slope * center / spread)


def quality(logits: np.ndarray, relevant: np.ndarray) -> tuple[float, float, float]:
    """Log loss, Brier score, and the expected calibration error over ten bins of equal width."""
    p = expit(logits)
    bins = pd.DataFrame({"p": p, "relevant": relevant}).groupby(np.minimum(np.floor(p * 10), 9))
    gaps = bins.p.mean() - bins.relevant.mean()
    return (
        log_loss(logits, relevant),
        float(np.mean((p - relevant) ** 2)),
        float((gaps.abs() * bins.size()).sum() / len(p)),
    )


def cuts(of: pd.DataFrame) -> pd.DataFrame:
    """The cuts between unequal scores, from the highest: how many are above, how many relevant, and Kish's size."""
    of = of.sort_values("score", ascending=False, kind="stable")
    number = of.groupby("query").cumcount() + 1
    table = pd.DataFrame(
        {
            "score": of.score.to_numpy(),
            "count": np.arange(1, len(of) + 1),
            "hits": of.relevant.cumsum().to_numpy(),
            "squares": (2 * number - 1).cumsum().to_numpy(),  # of the queries' numbers above
        }
    )
    return table.assign(size=table["count"] ** 2 / table.squares).groupby("score", sort=False).last().reset_index()


def by_bound(of: pd.DataFrame, precision: float) -> float | None:
    """The lowest score above which the precision can be promised: tests in a fixed order, .05 divided by the starts."""
    table, starts = cuts(of), [16]
    while starts[-1] * 4 <= len(of):
        starts.append(starts[-1] * 4)
    share = table.hits / table["count"]
    p = beta.cdf(precision, share * table["size"], table["size"] * (1 - share) + 1)  # of so many hits, or more
    passed, lowest = (p <= 0.05 / len(starts)) & (share > 0), None
    for start in starts:
        for at in table.index[table["count"] >= start]:
            if not passed[at]:
                break
            lowest = table.score[at] if lowest is None else min(lowest, table.score[at])
    return lowest


def by_lowest_cut(of: pd.DataFrame, precision: float) -> float | None:
    """The lowest score above which so large a share happens to be relevant."""
    table = cuts(of)
    enough = table[table.hits / table["count"] >= precision]
    return None if enough.empty else float(enough.score.iloc[-1])


def kept_promises() -> tuple[int, int]:
    """How many promises the lowest cut makes on the same collection, and how many of them are broken."""
    shares = []
    for (ranker, fit, test), precision in itertools.product(FITS, PRECISIONS):
        if (least := by_lowest_cut(candidates(ranker, fit), precision)) is not None:
            of = candidates(ranker, test)
            shares.append((of[of.score >= least].relevant.mean(), precision))
    return len(shares), sum(share < precision for share, precision in shares)


def above(ranker: str, lists: str, least: float | None) -> str:
    """The precision of what is above, and how many."""
    if least is None:
        return "none"
    of = candidates(ranker, lists)
    of = of[of.score >= least]
    return f"{plain(of.relevant.mean(), 3)} ({len(of)})" if len(of) else "– (0)"


@table("calibration", FITS)
@table("calibration-elsewhere", ELSEWHERE)
def qualities(fits: list[tuple[str, str, str]]) -> Iterator[list[object]]:
    """Before and after."""
    yield ["ranker", "fitted on, queries", "measured on, queries", "log loss", "Brier score", "calibration error"]
    for ranker, fit, test in fits:
        of, (a, b) = candidates(ranker, test), fitted(ranker, fit)
        scores, relevant = of.score.to_numpy(), of.relevant.to_numpy()
        pairs = zip(quality(scores, relevant), quality(a * scores + b, relevant), strict=True)
        names = [f"{name}, {candidates(ranker, name)['query'].nunique():,}" for name in (fit, test)]
        yield [ranker, *names, *(f"{before:.4f} → {after:.4f}" for before, after in pairs)]


@table("promises", FITS)
@table("promises-elsewhere", ELSEWHERE)
def promises(fits: list[tuple[str, str, str]]) -> Iterator[list[object]]:
    """The precision on the second lists of what is above thresholds of the first."""
    yield [
        "ranker",
        "fitted on",
        "measured on",
        *(f"{p}, {how}" for p in PRECISIONS for how in ("bound", "lowest cut")),
    ]
    for ranker, fit, test in fits:
        of = candidates(ranker, fit)
        least = [find(of, precision) for precision in PRECISIONS for find in (by_bound, by_lowest_cut)]
        yield [ranker, fit, test, *(above(ranker, test, one) for one in least)]
