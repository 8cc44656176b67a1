"""Means with their errors over queries and seeds, and over collections; the formulas are in docs/evaluation.md.

Intervals are Student's. ``rerank experiment`` resamples, so single intervals differ by some thousandths.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar
from scipy.stats import t as student

MARGIN = 0.01
"""Differences below this count as too small to matter."""


@dataclass(frozen=True)
class Found:
    """A mean with its standard error and degrees of freedom."""

    mean: float
    error: float
    freedom: float

    @property
    def half(self) -> float:
        """Half of the 95 % interval."""
        return float(student.ppf(0.975, self.freedom) * self.error)

    @property
    def p(self) -> float:
        return 2 * float(student.sf(abs(self.mean) / self.error, self.freedom))

    def within(self, margin: float = MARGIN) -> float:
        """Return the larger p-value of the two one-sided tests of equivalence within the margin."""
        return float(student.sf((margin - abs(self.mean)) / self.error, self.freedom))

    def verdict(self, margin: float = MARGIN) -> str:
        if self.within(margin) < 0.05:
            return "equivalent"
        return "undecided" if self.p >= 0.05 else "better" if self.mean > 0 else "worse"

    def __str__(self) -> str:
        return f"{signed(self.mean)} [{signed(self.mean - self.half)}, {signed(self.mean + self.half)}]"


def difference(row: pd.DataFrame, against: pd.DataFrame) -> Found:
    """Compare over queries and seeds, paired by query and seed; each fold has training runs of its own."""
    row, against = row.align(against, join="inner", axis=0)
    if 0 in against.columns:
        gaps = row.sub(against[0], axis=0)
    else:
        seeds = row.columns.intersection(against.columns)
        gaps = row[seeds] - against[seeds]
    gaps = gaps.where(gaps.abs() > 1e-12, 0)
    seeds, queries = gaps.shape[1], len(gaps)
    by_fold, share = gaps.groupby(level="fold").mean(), gaps.groupby(level="fold").size() / queries
    mean, folds = float(gaps.to_numpy().mean()), len(share)
    if seeds == 1 and folds > 1:
        total = (share**2 * (by_fold.iloc[:, 0] - mean) ** 2).sum() * folds / (folds - 1)
        return Found(mean, float(total**0.5), folds - 1)
    trained = [(share[f] ** 2 * by_fold.loc[f].var() / seeds, seeds - 1) for f in share.index] if seeds > 1 else []
    parts = [*trained, (gaps.mean(axis=1).var() / queries, queries - 1)]
    total = sum(part for part, _ in parts)
    return Found(mean, float(total**0.5), float(total**2 / sum(part**2 / freedom for part, freedom in parts)))


@dataclass(frozen=True)
class Pool(Found):
    """Several collections by random effects; tau is the spread between them."""

    tau: float


def pooled(found: Sequence[Found]) -> Pool:
    """Pool by restricted maximum likelihood, with Hartung and Knapp's interval, no narrower than the errors alone."""
    y, v = np.array([one.mean for one in found]), np.array([one.error**2 for one in found])
    k = len(y)

    def at(tau2: float) -> tuple[np.ndarray, float, float]:
        w = 1 / (v + tau2)
        mu = float(w @ y / w.sum())
        return w, mu, float(w @ (y - mu) ** 2)

    def minus_likelihood(tau2: float) -> float:
        w, _, q = at(tau2)
        return float(q - np.log(w).sum() + np.log(w.sum()))

    places = np.linspace(0, 1, 21) ** 2 * float(np.ptp(y)) ** 2  # the likelihood may have several maxima
    grid = [
        minimize_scalar(minus_likelihood, bounds=ends, method="bounded", options={"xatol": 1e-12})
        for ends in itertools.pairwise(places)
    ]
    best = min(grid, key=lambda one: one.fun)
    tau2 = float(best.x) if best.fun < minus_likelihood(0) - 1e-12 else 0.0
    w, mu, q = at(tau2)
    error = float((max(1.0, q / (k - 1)) / w.sum()) ** 0.5)
    return Pool(mu, error, k - 1, tau2**0.5)


def holm(p: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's method."""
    order = np.argsort(p)
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(np.minimum(1, np.array(p)[order] * np.arange(len(p), 0, -1)))
    return corrected.tolist()


def plain(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}f}".replace("0.", ".", 1).replace("-", "−")


def signed(value: float, digits: int = 4) -> str:
    return ("−" if value < 0 else "+") + plain(abs(value), digits)


def probability(p: float) -> str:
    return "1" if p == 1 else plain(p, 3) if p >= 0.001 else "< .001"


def mean(values: pd.DataFrame | pd.Series, digits: int = 4) -> str:
    """Format the mean over all queries and seeds that count."""
    return plain(float(np.nanmean(values.to_numpy())), digits)


Row = list[object]
Lines = Callable[..., Iterable[Row]]
"""Gives the rows of a table, its head first."""

TABLES: dict[str, Lines] = {}
"""Tables by the name that stands in pages: ``<!-- table: NAME -->`` to ``<!-- end -->``."""


def table(name: str, *given: str) -> Callable[[Lines], Lines]:
    """Register a function that gives a table's rows from these arguments."""

    def add(lines: Lines) -> Lines:
        TABLES[name] = functools.partial(lines, *given)
        return lines

    return add


@functools.cache
def markdown(name: str) -> str:
    """Recompute a table."""
    head, *body = TABLES[name]()
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in [head, ["---"] * len(head), *body])
