"""Normalised expected reciprocal rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rerank.measures.base import Measure, positions, ratio, survival
from rerank.measures.smooth import inside
from rerank.relaxations.base import Batch, RankIndicators, SoftRanks
from rerank.relaxations.order import first

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class nERR(Measure):
    r"""Expected reciprocal rank over that of the ideal order (Chapelle et al. 2009; Yu 2020, Eqs 9 and 10).

    .. math:: \mathrm{ERR@}k = \sum_{r=1}^{k} \frac{p_{o_r}}{r} \prod_{l<r} (1 - p_{o_l}), \quad
        p_i = \frac{2^{y_i} - 1}{2^{y_{\max}}}

    From rank indicators :math:`p_{o_r}` becomes :math:`\sum_j E_{rj} p_j`; from soft ranks the order is held fixed
    and the gradient flows through the reciprocal ranks, :math:`1 / r_{o_r}` (Yu 2020, Eq 16), and through the cut-off
    where the relaxation takes its steepness from the spread of scores.

    >>> nERR(max_rel=1).exact(torch.tensor([[2.0, 1.0]]), torch.tensor([[0, 1]]))  # p = 1/2: (1/2 / 2) / (1/2 / 1)
    tensor([0.5000])

    Args:
        cutoff: k; None for the whole list.
        max_rel: the grade y_max, to which higher ones are lowered; None takes the largest of each list.
    """

    name: ClassVar[str] = "nERR"

    max_rel: int | None = None

    def relevant(self, labels: Tensor) -> Tensor:
        return labels > 0

    def _stops(self, labels: Tensor) -> Tensor:
        """p, the probability that a document stops the reader: ``[B, N]``."""
        if self.max_rel is None:
            top = labels.amax(dim=1, keepdim=True)
            return (labels - top).exp2() - (-top).exp2()  # the powers themselves overflow from grade 128 on
        return (labels.clamp(max=self.max_rel) - self.max_rel).exp2() - 2.0**-self.max_rel

    def _best(self, stops: Tensor, depth: int) -> Tensor:
        """ERR@k of the ideal order, ``[B]``."""
        return _err(stops.topk(depth, dim=1).values)

    def from_indicators(self, relaxation: RankIndicators, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        depth = self.depth(mask)
        stops = self._stops(labels)
        expected = relaxation.expected(scores, stops, mask, depth) * first(mask, depth)
        return ratio(_err(expected), self._best(stops, depth))

    def from_ranks(self, relaxation: SoftRanks, batch: Batch) -> Tensor:
        """Reciprocal soft ranks, weighted by the chance that the reader stops there under the exact order."""
        stops = self._stops(batch.labels)
        exact = batch.exact.long() - 1
        reached = survival(stops.scatter(1, exact, stops)).gather(1, exact)
        weights = batch.at_rows(reached * stops)
        ranks = relaxation.ranks(batch)
        if relaxation.score_steepness(batch) is not None:
            weights = weights * inside(relaxation, batch, ranks, self.cutoff)
        elif self.cutoff is not None:
            weights = weights * (batch.at_rows(exact) < self.cutoff)
        value = (weights / ranks).sum(dim=1)
        return ratio(value, self._best(stops, self.depth(batch.mask)))


def _err(stops: Tensor) -> Tensor:
    """Expected reciprocal rank of stopping probabilities in ranked order: ``[B, depth]`` to ``[B]``."""
    return (stops * survival(stops) / positions(stops.shape[1], stops)).sum(dim=1)
