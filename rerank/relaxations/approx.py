"""Approx: ranks by pairwise sigmoids."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rerank.relaxations.base import Batch, SoftRanks
from rerank.relaxations.pair_ranks import sigmoid_ranks
from rerank.relaxations.spread import Spread, steepness
from rerank.settings.ranges import Positive


class Approx(SoftRanks):
    r"""Ranks by pairwise sigmoids (Qin, Liu and Li 2010; Bruch, Zoghi, Bendersky and Najork 2019, Eqs 5 and 6).

    .. math:: r_i = 1 + \sum_{j \ne i} \sigma(\alpha (s_j - s_i)), \quad T_i = \sigma(\beta (k - r_i))

    T is how far document i is within the cut-off k. Tied documents share the mean of their ranks. Only the rows of
    relevant documents are computed, and nothing of size rows x N is kept for the backward pass.

    These are the papers' formulas. The document at rank k counts half, however large alpha and beta are;
    ``half_rank`` compares with k + 1/2 instead, so that the limit is the exact measure. Neither learns at a cut-off
    from scores that are close together: of 150 tied documents each has rank 75.5, where T is 0. ``alpha="spread"``,
    which is ours as well, takes

    .. math:: \alpha = \frac{3}{\min(1, \mathrm{sd}(s))}, \quad T_i = \sigma\bigl(\alpha (s_i - c)\bigr)

    with sd the spread of the list's scores (at least .001) and c midway between the k-th score and the next. The spread
    counts as constant; the gradient of c is shared by documents near it, in proportion to the slope of T. AP and RR
    then compare scores, too. Scores further apart still make the ranks sharper, so that the limit is the exact measure.

    >>> mask, rows = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0, 1]])
    >>> batch = Batch(torch.tensor([[1.0, 4.0]]).log(), torch.tensor([[1.0, 0.0]]), mask, rows)
    >>> Approx(alpha=1).ranks(batch)  # scores of 0 and ln 4, and sigmoid(ln 4) = 4/5: 1 + 4/5 and 1 + 1/5
    tensor([[1.8000, 1.2000]])

    Args:
        alpha: steepness of the sigmoids over scores; exact as it grows. 10 is what Bruch et al. settle on; "spread"
            takes it from the spread of scores.
        beta: steepness of the sigmoids over ranks (cut-off, AP, RR). None takes alpha; with ``alpha="spread"``, scores
            are compared in place of ranks.
        half_rank: whether ranks are compared with k + 1/2, midway between the last rank within the cut-off and the
            next, and not with k as in Qin et al.
    """

    def __init__(self, alpha: Positive | Spread = 10.0, beta: Positive | None = None, half_rank: bool = False) -> None:
        self.alpha = alpha
        given = alpha if beta is None else beta
        self.by_scores = isinstance(given, str)
        if not isinstance(given, str):
            self.beta = given
        self.cutoff_shift = 0.5 if half_rank or self.by_scores else 0.0

    def ranks(self, batch: Batch) -> Tensor:
        return sigmoid_ranks(batch, steepness(batch.spread) if isinstance(self.alpha, str) else self.alpha)

    def identity(self) -> dict[str, Any]:
        """Without ``half_rank``: it tells at a cut-off alone, where :class:`DirectMetric` says so."""
        return {name: value for name, value in super().identity().items() if name != "half_rank"}
