r"""What difference an experiment could find, said before it is run.

A paired difference per query :math:`q` and seed :math:`s` is :math:`\delta + a_s + b_q + e_{sq}` with standard
deviations :math:`\sigma_a, \sigma_b, \sigma_e` (`Deviations`). With :math:`Q` queries, :math:`S` seeds, :math:`m`
planned comparisons and :math:`F` folds that are trained on their own, the test of :mod:`rerank.evaluation.crossed` has
the squared standard error

.. math::

    E = \frac{\sigma_b^2 + \sigma_e^2 / S}{Q} + [S > 1] \, \frac{\sigma_a^2 / F + \sigma_e^2 / Q}{S}

and, under Holm's correction in its strictest step, finds with probability :math:`1 - \beta` a true difference of

.. math:: \delta = \bigl(t_{1 - \alpha / (2m), \nu} + t_{1 - \beta, \nu}\bigr) \sqrt{E},

:math:`\nu` by Satterthwaite, from :math:`Q - 1` and :math:`F(S - 1)`. It is the usual sample size formula of a paired
test (Cohen 1988, section 2; for queries Sakai, "Topic set size design", 2016) with the seeds' share of the error added.
With one seed nothing tells :math:`\sigma_a`, and the difference meant is that of the two trained models, not of the
methods; but the means of folds tell all of it, :math:`E = (\sigma_b^2 + \sigma_e^2)/Q + \sigma_a^2/F` and
:math:`\nu = F - 1`.

Some pairs of methods differ more evenly than others. What is measured is never averaged over pairs: each has its own
:math:`E` and :math:`\nu`, once it is trained those of its interval.
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
        seed: of the mean difference over trainings with other seeds.
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


def measured_deviations(difference: np.ndarray, folds: np.ndarray) -> Deviations | None:
    r"""Deviations from finished trainings of two methods: variance components, no less than 0.

    Within folds, by the mean squares of the two-way layout without replication: :math:`\sigma_e^2 = MS_e`,
    :math:`\sigma_b^2 = (MS_q - MS_e)/S`, :math:`\sigma_a^2 = (MS_s - MS_e)/Q_f`. With one seed all of it is variance
    over queries.

    Args:
        difference: ``[S, Q]``, see :func:`rerank.evaluation.crossed.paired`.
        folds: the fold of each query ``[Q]``.

    Returns:
        None where no fold has two queries.
    """
    seeds = len(difference)
    parts = [difference.compress(folds == fold, axis=1) for fold in np.unique(folds)]
    freedom = sum(part.shape[1] - 1 for part in parts)
    if not freedom:
        return None
    within = [part - part.mean(axis=1, keepdims=True) for part in parts]
    residual = sum(float(((part - part.mean(axis=0)) ** 2).sum()) for part in within) / max(1, (seeds - 1) * freedom)
    query = sum(float((part.mean(axis=0) ** 2).sum()) for part in within) / freedom - residual / seeds
    seed = 0.0
    if seeds > 1:
        seed = float(np.mean([part.mean(axis=1).var(ddof=1) - residual / part.shape[1] for part in parts]))
    return Deviations(*np.sqrt(np.maximum([query, seed, residual], 0)).tolist())


def smallest_difference(error: float, freedom: float, comparisons: int = 1) -> float:
    """The smallest true difference that is found with probability `POWER` at level `ALPHA`; infinite without freedom.

    Args:
        error: standard error of the difference.
        freedom: its degrees of freedom.
        comparisons: how many p-values Holm's correction is over.

    >>> round(smallest_difference(0.2 / 300**0.5, 299), 4)  # (1.968 + 0.843) * 0.2 / sqrt(300)
    0.0325
    """
    if freedom <= 0:
        return float("inf")
    from scipy.stats import t

    return float((t.ppf(1 - ALPHA / (2 * max(comparisons, 1)), freedom) + t.ppf(POWER, freedom)) * error)


def planned_error(deviations: Deviations, queries: int, seeds: int, folds: int = 1) -> tuple[float, float]:
    """Standard error and degrees of freedom that a design will have, by the formula above.

    >>> planned_error(Deviations(query=0.2, seed=0.0, residual=0.0), queries=400, seeds=1)
    (0.01, 399.0)
    """
    query, seed, residual = (value**2 for value in (deviations.query, deviations.seed, deviations.residual))
    if seeds == 1 and folds > 1:
        return float(np.sqrt((query + residual) / queries + seed / folds)), float(folds - 1)
    parts = [((query + residual / seeds) / max(queries, 1), queries - 1)]
    if seeds > 1:
        parts.append(((seed / folds + residual / max(queries, 1)) / seeds, folds * (seeds - 1)))
    total = sum(part for part, _ in parts)
    if queries < 2 or total == 0:
        return float(np.sqrt(total)), float(queries - 1)
    return float(np.sqrt(total)), total**2 / sum(part**2 / count for part, count in parts)


def found_differences(
    queries: int,
    seeds: int,
    folds: int,
    comparisons: int,
    deviations: Mapping[str, Sequence[Deviations]],
    measured: bool,
) -> str:
    """A sentence on the smallest differences that a design finds, by measure; from and to, where pairs differ."""
    shown = []
    for name, several in deviations.items():
        found = [smallest_difference(*planned_error(one, queries, seeds, folds), comparisons) for one in several]
        shown.append(f"{name} {smallest_and_largest(found)}")
    source = "measured, by pair of methods" if measured else "typical"
    return (
        f"{queries} queries, {seeds} seed{'s' if seeds > 1 else ''} and {comparisons} comparisons find, with power "
        f"{POWER:g} at level {ALPHA:g}, differences from: {', '.join(shown)} ({source} standard deviations)."
    )


def smallest_and_largest(found: Sequence[float]) -> str:
    """Numbers in short: the one, or the smallest and the largest.

    >>> smallest_and_largest([0.0172, 0.0824, 0.02]), smallest_and_largest([0.0172])
    ('0.017 to 0.082', '0.017')
    """
    low, high = f"{min(found):.3f}", f"{max(found):.3f}"
    return low if low == high else f"{low} to {high}"
