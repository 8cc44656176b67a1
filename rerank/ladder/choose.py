"""Which rungs stay: a choice that noise alone passes one time in two hundred, however many rungs there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rerank.evaluation.significance import ROUNDING
from rerank.storage.arrow import Array

LEVEL = 0.005
"""The chance that a rung stays where none above is better: of twenty such ladders all keep theirs nine times in ten."""

FLIPS, BATCH = 10_000, 1000
"""Draws of signs by which the chance is known, and how many of them are in memory."""


def kept(values: Sequence[Array]) -> list[bool]:
    r"""Which rungs stay, lowest first; the first always does.

    With :math:`t_r` the mean difference of rung :math:`r` from the highest that stays, over its standard error, and
    :math:`p_r` the chance of as much where the differences of each query change their sign at random, the next to stay
    is the lowest above whose :math:`p_r` is one that the smallest :math:`p` of all rungs above falls to one time in
    two hundred, the signs of a query changing for all of them together (Westfall and Young 1993). That is asked again
    until there is none. So many rungs have many chances, some nearly the same, and one that few queries judge, whose
    :math:`t` is large by chance more often, does not raise the bar for the others.

    Args:
        values: the measure of each rung for each query, ``[Q]`` each; NaN where a rung has learned from the query's
            judgments, so that two rungs are compared over the queries that neither has seen.
    """
    stays = [True] + [False] * (len(values) - 1)
    highest = 0
    while highest + 1 < len(values):
        above = np.stack(values[highest + 1 :]) - values[highest]
        above[np.abs(above) < ROUNDING] = 0.0  # rounding errors are ties
        better = np.flatnonzero(_chances(above) <= LEVEL)
        if not len(better):
            break
        highest += 1 + int(better[0])
        stays[highest] = True
    return stays


def _chances(difference: Array) -> Array:
    """For each of ``[R, Q]`` differences the chance that noise has one rung as far above, ``[R]``."""
    rng = np.random.default_rng(0)
    signs = (rng.choice(np.array([-1.0, 1.0]), (BATCH, difference.shape[1])) for _ in range(FLIPS // BATCH))
    drawn = np.concatenate([_t(of, difference) for of in signs])
    own = _t(np.ones((1, difference.shape[1])), difference)
    ordered = np.sort(drawn, axis=0) - 1e-9  # rounding errors are ties
    above = [FLIPS - np.searchsorted(ordered[:, r], np.concatenate([own, drawn])[:, r]) for r in range(len(difference))]
    p = np.stack(above, axis=1) / FLIPS
    smallest = np.sort(p[1:].min(axis=1))
    return np.searchsorted(smallest, p[0], side="right") / FLIPS


def _t(signs: Array, difference: Array) -> Array:
    """Means over standard errors, ``[S, R]``, of differences ``[R, Q]`` with signs ``[S, Q]``; 0 where all are 0."""
    known = np.where(np.isnan(difference), 0.0, difference)
    queries = np.maximum(2, (~np.isnan(difference)).sum(axis=1))
    means = signs @ known.T / queries
    variance = np.maximum((known**2).sum(axis=1) / queries - means**2, 1e-12) / (queries - 1)
    return means / np.sqrt(variance)
