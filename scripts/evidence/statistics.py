"""Means with their errors, over queries and trainings, and over collections, from the formulas of docs/evaluation.md.

Intervals are Student's, where ``rerank experiment`` resamples: single intervals differ by some thousandths.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import t as student

MARGIN = 0.01
"""What the verdicts call too small to matter."""


@dataclass(frozen=True)
class Found:
    """A mean with its standard error and degrees of freedom."""

    mean: float
    error: float
    freedom: float

    @property
    def half(self) -> float:
        return float(student.ppf(0.975, self.freedom) * self.error)

    @property
    def p(self) -> float:
        return 2 * float(student.sf(abs(self.mean) / self.error, self.freedom))

    def within(self, margin: float = MARGIN) -> float:
        """The larger p of the two one-sided tests that the difference is not within the margin."""
        return float(student.sf((margin - abs(self.mean)) / self.error, self.freedom))

    def finds(self) -> float:
        """The true difference that is found with a probability of .8 at .05."""
        return float(student.ppf([0.975, 0.8], self.freedom).sum() * self.error)

    def verdict(self, margin: float = MARGIN) -> str:
        if self.within(margin) < 0.05:
            return "equivalent"
        return "undecided" if self.p >= 0.05 else "better" if self.mean > 0 else "worse"

    def __str__(self) -> str:
        return f"{signed(self.mean)} [{signed(self.mean - self.half)}, {signed(self.mean + self.half)}]"


def of_queries(values: np.ndarray | pd.Series) -> Found:
    """Over queries alone: of these trained models."""
    return Found(float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5), len(values) - 1)


def difference(row: pd.DataFrame, against: pd.DataFrame) -> Found:
    """Over queries and trainings, paired by query and seed; folds have trainings of their own."""
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
    """Several collections by random effects: tau, the share of spread beyond chance, half of the prediction."""

    tau: float
    heterogeneity: float
    outer: float

    @property
    def prediction(self) -> str:
        """Nothing for two collections."""
        return "" if np.isnan(self.outer) else f"{signed(self.mean - self.outer)} … {signed(self.mean + self.outer)}"


def pooled(found: Sequence[Found], estimator: str = "REML") -> Pool:
    """Random effects with Hartung and Knapp's interval, no narrower than the errors alone make it."""
    y, v = np.array([one.mean for one in found]), np.array([one.error**2 for one in found])
    k, widest = len(y), float(np.ptp(y)) ** 2

    def at(tau2: float) -> tuple[np.ndarray, float, float]:
        w = 1 / (v + tau2)
        mu = float(w @ y / w.sum())
        return w, mu, float(w @ (y - mu) ** 2)

    def minus_likelihood(tau2: float) -> float:
        w, _, q = at(tau2)
        return float(q - np.log(w).sum() + np.log(w.sum()))

    if estimator == "REML":
        places = np.linspace(0, 1, 21) ** 2 * widest  # the likelihood may have several maxima
        grid = [
            minimize_scalar(minus_likelihood, bounds=ends, method="bounded", options={"xatol": 1e-12})
            for ends in itertools.pairwise(places)
        ]
        best = min(grid, key=lambda one: one.fun)
        tau2 = float(best.x) if best.fun < minus_likelihood(0) - 1e-12 else 0.0
    else:
        tau2 = 0.0 if at(0)[2] <= k - 1 else float(brentq(lambda x: at(x)[2] - (k - 1), 0, widest, xtol=1e-15))
    w, mu, q = at(tau2)
    error = float((max(1.0, q / (k - 1)) / w.sum()) ** 0.5)
    typical = (k - 1) * (1 / v).sum() / ((1 / v).sum() ** 2 - (1 / v**2).sum())
    outer = float(student.ppf(0.975, k - 2) * (tau2 + error**2) ** 0.5)
    return Pool(mu, error, k - 1, tau2**0.5, float(tau2 / (tau2 + typical)), outer)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's correction."""
    order = np.argsort(p)
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(np.minimum(1, np.array(p)[order] * np.arange(len(p), 0, -1)))
    return corrected.tolist()


def plain(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}f}".replace("0.", ".", 1).replace("-", "−")


def signed(value: float, digits: int = 4) -> str:
    return ("−" if value < 0 else "+") + plain(abs(value), digits)


def probability(p: float) -> str:
    return f"{p:.4f}".removeprefix("0") if p >= 0.0001 else "< .0001"


def mean(values: pd.DataFrame | pd.Series, digits: int = 4) -> str:
    """Of all queries and trainings."""
    return plain(float(values.to_numpy().mean()), digits)


Lines = Callable[..., Iterable[Sequence[object]]]
"""Gives the cells of a table, its head first."""

TABLES: dict[str, Callable[[], Iterable[Sequence[object]]]] = {}
"""What stands in pages between ``<!-- table: NAME -->`` and ``<!-- end -->``."""


def table(name: str, *given: str) -> Callable[[Lines], Lines]:
    """A decorator of what gives a table's lines, from these arguments."""

    def add(lines: Lines) -> Lines:
        TABLES[name] = functools.partial(lines, *given)
        return lines

    return add


def markdown(lines: Iterable[Sequence[object]]) -> str:
    """A table of which the first line is the head."""
    head, *body = lines
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in [head, ["---"] * len(head), *body])
