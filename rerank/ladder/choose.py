"""Which rungs stay: a choice that noise alone passes one time in a hundred, however many rungs there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rerank.evaluation.significance import ROUNDING
from rerank.storage.arrow import Array

LEVEL = 0.01
"""The chance that a rung stays where none above is better."""

FLIPS, BATCH = 10_000, 1000
"""Draws of signs by which the chance is known, and how many of them are in memory."""


def kept(values: Sequence[Array]) -> list[bool]:
    r"""Which rungs stay, lowest first; the first always does.

    With :math:`t_r` the mean difference of rung :math:`r` from the highest that stays, over its standard error, the
    next to stay is the lowest above with :math:`t_r > c`. That is asked again until there is none. So many rungs have
    so many chances, and some say nearly the same; so :math:`c` is what :math:`\max_r t_r` exceeds one time in a hundred
    where the differences of each query, those of all rungs together, change their sign at random (Westfall and Young
    1993): as they may where no rung above is better.

    Args:
        values: the measure of each rung for each query, ``[Q]`` each; NaN where a rung has learned from the query's
            judgments, so that two rungs are compared over the queries that neither has seen.
    """
    stays = [True] + [False] * (len(values) - 1)
    highest = 0
    while highest + 1 < len(values):
        above = np.stack([_difference(rung, values[highest]) for rung in values[highest + 1 :]])
        found = np.flatnonzero(_t(np.ones((1, above.shape[1])), above)[0] > _threshold(above))
        if not len(found):
            break
        highest += 1 + int(found[0])
        stays[highest] = True
    return stays


def _difference(ours: Array, theirs: Array) -> Array:
    """``ours - theirs``, ``[Q]``, NaN where either is; rounding errors are ties."""
    difference: Array = ours - theirs
    return np.where(np.abs(difference) < ROUNDING, 0.0, difference)


def _threshold(difference: Array) -> float:
    """What the highest t of ``[R, Q]`` differences exceeds by chance, at `LEVEL`."""
    rng, highest = np.random.default_rng(0), []
    for _ in range(FLIPS // BATCH):
        signs = rng.choice(np.array([-1.0, 1.0]), (BATCH, difference.shape[1]))
        highest.append(_t(signs, difference).max(axis=1))
    return float(np.quantile(np.concatenate(highest), 1 - LEVEL, method="higher"))


def _t(signs: Array, difference: Array) -> Array:
    """Means over standard errors, ``[S, R]``, of differences ``[R, Q]`` with signs ``[S, Q]``; 0 where all are 0."""
    known = np.where(np.isnan(difference), 0.0, difference)
    queries = np.maximum(2, (~np.isnan(difference)).sum(axis=1))
    means = signs @ known.T / queries
    variance = np.maximum((known**2).sum(axis=1) / queries - means**2, 1e-12) / (queries - 1)
    found: Array = means / np.sqrt(variance)
    return found
