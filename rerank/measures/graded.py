"""Measures of grades: nDCG and nERR."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

from rerank.measures.base import Measure, inside, positions, ratio, survival
from rerank.relaxations.base import Batch, RankIndicators, SoftRanks
from rerank.relaxations.order import first

if TYPE_CHECKING:
    import torch
    from torch import Tensor


FAR = 60
"""Grades below ``max_rel`` from which on 1 - p is 1 in any floating-point type."""


@dataclass(frozen=True)
class nDCG(Measure):
    r"""Normalised discounted cumulative gain (Järvelin and Kekäläinen 2002), with trec_eval's linear gain by default.

    .. math:: \mathrm{nDCG@}k = \frac{1}{\mathrm{IDCG@}k} \sum_{r=1}^{k} \frac{G(y_{o_r})}{\log_2(r + 1)}

    From rank indicators :math:`G(y_{o_r})` becomes :math:`\sum_j E_{rj} G(y_j)` (gain of documents) or
    :math:`G(\sum_j E_{rj} y_j)` (gain of ranks, SmoothI's Eq 12). From soft ranks the sum runs over documents,
    :math:`\sum_i G(y_i) T_i / \log_2(r_i + 1)`, with :math:`T_i` how far document i is within the cut-off.

    >>> scores, labels = torch.tensor([[2.0, 1.0]]), torch.tensor([[0, 3]])
    >>> nDCG().exact(scores, labels)  # (3 / log2(3)) / (3 / log2(2))
    tensor([0.6309])

    Args:
        cutoff: k; None for the whole list.
        dcg: "log2" for G = y, "exp-log2" for G = 2^y - 1, with grades above 100 as 100.
    """

    name: ClassVar[str] = "nDCG"

    dcg: Literal["log2", "exp-log2"] = "log2"

    def gain(self, labels: Tensor) -> Tensor:
        return _powers(labels).exp2() - 1 if self.dcg == "exp-log2" else labels

    def from_indicators(self, relaxation: RankIndicators, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        depth = self.depth(mask)
        gains = self.gain(labels)
        discounts = _discounts(depth, gains.dtype, gains.device)
        weights = ratio(discounts * first(mask, depth), ideal_gain(gains, depth)[:, None])
        if relaxation.gain_of == "ranks":
            labels = _powers(labels) if self.dcg == "exp-log2" else labels
            return relaxation.weighted(scores, labels, weights, mask, exponential=self.dcg == "exp-log2")
        return relaxation.weighted(scores, gains, weights, mask)

    def from_ranks(self, relaxation: SoftRanks, batch: Batch) -> Tensor:
        import torch

        ranks = relaxation.ranks(batch)
        gains = self.gain(batch.at_rows(batch.labels))
        ideal = ideal_gain(gains, min(self.depth(batch.mask), gains.shape[1]))
        shares = gains * (math.log(2) / ideal.clamp_(min=torch.finfo(ideal.dtype).tiny))[:, None]
        return (shares * inside(relaxation, batch, ranks, self.cutoff) / ranks.log1p()).sum(dim=1)


def _powers(labels: Tensor) -> Tensor:
    """Lower grades to 100, so that sums of 2^y stay finite in float32."""
    return labels.clamp(max=100)


@lru_cache(maxsize=32)
def _discounts(depth: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Compute ``1 / log2(r + 1)`` of the ranks 1 to depth."""
    import torch

    return torch.arange(2, depth + 2, dtype=dtype, device=device).log2().reciprocal()


def ideal_gain(gains: Tensor, depth: int) -> Tensor:
    """Compute the discounted gain of the ideal order, ``[B]``; documents without gain may be left out."""
    return (gains.topk(depth, dim=1).values * _discounts(depth, gains.dtype, gains.device)).sum(dim=1)


@dataclass(frozen=True)
class nERR(Measure):
    r"""Expected reciprocal rank over that of the ideal order (Chapelle et al. 2009; Yu 2020, Eqs 9 and 10).

    .. math:: \mathrm{ERR@}k = \sum_{r=1}^{k} \frac{p_{o_r}}{r} \prod_{l<r} (1 - p_{o_l}), \quad
        p_i = \frac{2^{y_i} - 1}{2^{y_{\max}}}

    From rank indicators :math:`p_{o_r}` becomes :math:`\sum_j E_{rj} p_j`; from soft ranks the order is held fixed
    and the gradient flows through the reciprocal ranks, :math:`1 / r_{o_r}` (Yu 2020, Eq 16), and through the cut-off
    if the relaxation takes its steepness from the spread of scores.

    >>> nERR(max_rel=1).exact(torch.tensor([[2.0, 1.0]]), torch.tensor([[0, 1]]))  # p = 1/2: (1/2 / 2) / (1/2 / 1)
    tensor([0.5000])

    Args:
        cutoff: k; None for the whole list.
        max_rel: the grade y_max, to which higher ones are lowered; None takes the largest of each list.
    """

    name: ClassVar[str] = "nERR"

    max_rel: int | None = None

    def _stops(self, labels: Tensor) -> Tensor:
        """Compute p, the probability that a document stops the reader: ``[B, N]``."""
        top = labels.amax(dim=1, keepdim=True)
        if self.max_rel is not None:
            # the chances of a list far below max_rel underflow; with a smaller one their ratio is the same
            labels, top = labels.clamp(max=self.max_rel), (top + FAR).clamp(max=self.max_rel)
        return (labels - top).exp2() - (-top).exp2()  # 2^y itself overflows from grade 128 on

    def _best(self, stops: Tensor, depth: int) -> Tensor:
        """Compute ERR@k of the ideal order, ``[B]``."""
        return _err(stops.topk(depth, dim=1).values)

    def from_indicators(self, relaxation: RankIndicators, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        depth = self.depth(mask)
        stops = self._stops(labels)
        expected = relaxation.expected(scores, stops, mask, depth) * first(mask, depth)
        return ratio(_err(expected), self._best(stops, depth))

    def from_ranks(self, relaxation: SoftRanks, batch: Batch) -> Tensor:
        """Sum reciprocal soft ranks, weighted by the chance that the reader stops there under the exact order."""
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
    """Compute the expected reciprocal rank of stopping probabilities in ranked order: ``[B, depth]`` to ``[B]``."""
    return (stops * survival(stops) / positions(stops.shape[1], stops)).sum(dim=1)
