r"""What difference an experiment could find, said before it is run.

A paired difference per query :math:`q` and seed :math:`s` is :math:`\delta + a_s + b_q + e_{sq}` with standard
deviations :math:`\sigma_a, \sigma_b, \sigma_e` (`Deviations`). With :math:`Q` queries, :math:`S` seeds and :math:`m`
planned comparisons the test of :mod:`rerank.evaluation.crossed` has the squared standard error

.. math::

    E = \frac{\sigma_b^2 + \sigma_e^2 / S}{Q} + [S > 1] \, \frac{\sigma_a^2 + \sigma_e^2 / Q}{S}

and, under Holm's correction in its strictest step, finds with probability :math:`1 - \beta` a true difference of

.. math:: \delta = \bigl(t_{1 - \alpha / (2m), \nu} + t_{1 - \beta, \nu}\bigr) \sqrt{E},

:math:`\nu` by Satterthwaite. It is the usual sample size formula of a paired test (Cohen 1988, section 2; for queries
Sakai, "Topic set size design", 2016) with the seeds' share of the error added. With one seed nothing tells
:math:`\sigma_a`, and the difference meant is that of the two trained models, not of the methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

POWER, ALPHA = 0.8, 0.05


@dataclass(frozen=True)
class Deviations:
    """Standard deviations of paired differences.

    Attributes:
        query: of the difference over queries, that of a query being a mean over all seeds that could be.
        seed: of the mean difference over seeds.
        residual: of what is left of a query's difference with a seed.
    """

    query: float
    seed: float
    residual: float


TYPICAL = {
    "nDCG": Deviations(0.18, 0.006, 0.12),
    "AP": Deviations(0.2, 0.006, 0.14),
    "RR": Deviations(0.2, 0.006, 0.14),
    "P": Deviations(0.06, 0.003, 0.04),
}
"""Assumed where there are no finished cells, by the measure's name: about what seven losses differ by on SciFact's 300
test claims, where differences of nDCG@10 deviate by 0.21 over queries with one seed (0.25 with BM25 among them)."""

OTHER = TYPICAL["nDCG"]


def measured_deviations(differences: Sequence[np.ndarray]) -> Deviations | None:
    r"""Deviations from finished trainings: variance components of each pair of methods, averaged.

    By the mean squares of the two-way layout without replication: :math:`\sigma_e^2 = MS_e`,
    :math:`\sigma_b^2 = (MS_q - MS_e)/S`, :math:`\sigma_a^2 = (MS_s - MS_e)/Q`, no less than 0. With one seed all of it
    is variance over queries.

    Args:
        differences: ``[S, Q]`` for each pair of methods.

    Returns:
        None where no pair has two queries.
    """
    found = []
    for difference in differences:
        seeds, queries = difference.shape
        if queries < 2:
            continue
        of_queries, of_seeds = difference.mean(axis=0), difference.mean(axis=1)
        if seeds == 1:
            found.append((float(of_queries.var(ddof=1)), 0.0, 0.0))
            continue
        left = difference - of_queries - of_seeds[:, None] + difference.mean()
        residual = float((left**2).sum()) / ((seeds - 1) * (queries - 1))
        query = max(0.0, float(of_queries.var(ddof=1)) - residual / seeds)
        seed = max(0.0, float(of_seeds.var(ddof=1)) - residual / queries)
        found.append((query, seed, residual))
    return Deviations(*np.sqrt(np.mean(found, axis=0)).tolist()) if found else None


def smallest_difference(
    deviations: Deviations,
    queries: int,
    seeds: int,
    comparisons: int = 1,
    power: float = POWER,
    alpha: float = ALPHA,
) -> float:
    """The smallest true difference that a design finds with some probability; infinite with one query.

    Args:
        deviations: of paired differences.
        queries: test queries.
        seeds: seeds of each method.
        comparisons: how many p-values Holm's correction is over.
        power: the probability.
        alpha: level of the tests.

    >>> one = Deviations(query=0.2, seed=0.0, residual=0.0)
    >>> round(smallest_difference(one, queries=300, seeds=1), 4)  # (1.968 + 0.843) * 0.2 / sqrt(300)
    0.0325
    """
    if queries < 2:
        return float("inf")
    from scipy.stats import t

    query, seed, residual = (value**2 for value in (deviations.query, deviations.seed, deviations.residual))
    parts = [((query + residual / seeds) / queries, queries - 1)]
    if seeds > 1:
        parts.append(((seed + residual / queries) / seeds, seeds - 1))
    total = sum(part for part, _ in parts)
    if total == 0:
        return 0.0
    freedom = total**2 / sum(part**2 / count for part, count in parts)
    quantiles = t.ppf(1 - alpha / (2 * max(comparisons, 1)), freedom) + t.ppf(power, freedom)
    return float(quantiles * np.sqrt(total))


def found_differences(
    queries: int, seeds: int, comparisons: int, deviations: Mapping[str, Deviations], measured: bool
) -> str:
    """A sentence on the smallest differences that a design finds, by measure."""
    if not deviations:
        return "There is no pair of rows whose differences could tell the power."
    found = ", ".join(
        f"{name} {smallest_difference(one, queries, seeds, comparisons):.3f}" for name, one in deviations.items()
    )
    first = next(iter(deviations.values()))
    source = "measured" if measured else "typical"
    over = [f"{first.query:.2f} over queries"]
    over += [f"{first.seed:.3f} over seeds"] if seeds > 1 else []
    over += [f"{first.residual:.2f} of a query with a seed"] if first.residual else []
    return (
        f"{queries} queries, {seeds} seed{'s' if seeds > 1 else ''} and {comparisons} comparisons find, with power "
        f"{POWER:g} at level {ALPHA:g}, differences from: {found} ({source} standard deviations of differences, "
        f"{next(iter(deviations))}: {', '.join(over)})."
    )
