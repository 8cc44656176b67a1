r"""What difference an experiment would have found.

With :math:`m` planned comparisons and a pair whose difference has the standard error :math:`E` with :math:`\nu` degrees
of freedom (:mod:`rerank.evaluation.crossed`), the test finds, under Holm's correction in its strictest step, with
probability :math:`1 - \beta` a true difference of

.. math:: \delta = \bigl(t_{1 - \alpha / (2m), \nu} + t_{1 - \beta, \nu}\bigr) E,

the usual sample size formula of a paired test (Cohen 1988, section 2; for queries Sakai, "Topic set size design", 2016)
with the seeds' share of the error added. Some pairs of methods differ more evenly than others, so each has its own.
"""

from __future__ import annotations

from collections.abc import Sequence

POWER, ALPHA = 0.8, 0.05


def smallest_difference(error: float, freedom: float, comparisons: int = 1) -> float:
    """The smallest true difference that is found with probability `POWER` at level `ALPHA`; infinite without freedom.

    >>> round(smallest_difference(0.2 / 300**0.5, 299), 4)  # (1.968 + 0.843) * 0.2 / sqrt(300)
    0.0325
    """
    if freedom <= 0:
        return float("inf")
    from scipy.stats import t

    return float((t.ppf(1 - ALPHA / (2 * max(comparisons, 1)), freedom) + t.ppf(POWER, freedom)) * error)


def smallest_and_largest(found: Sequence[float]) -> str:
    """Numbers in short: the one, or the smallest and the largest.

    >>> smallest_and_largest([0.0172, 0.0824, 0.02]), smallest_and_largest([0.0172])
    ('0.017 to 0.082', '0.017')
    """
    low, high = f"{min(found):.3f}", f"{max(found):.3f}"
    return low if low == high else f"{low} to {high}"
