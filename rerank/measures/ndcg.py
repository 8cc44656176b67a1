"""Normalised discounted cumulative gain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

from rerank.measures.base import Measure, ratio
from rerank.measures.smooth import inside
from rerank.relaxations.base import Batch, RankIndicators, SoftRanks
from rerank.relaxations.order import first

if TYPE_CHECKING:
    import torch
    from torch import Tensor


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

    def relevant(self, labels: Tensor) -> Tensor:
        return labels > 0

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
    """Grades of which two to their power stays finite in float32, however many are added."""
    return labels.clamp(max=100)


@lru_cache(maxsize=32)
def _discounts(depth: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """``1 / log2(r + 1)`` of the ranks 1 to depth."""
    import torch

    return torch.arange(2, depth + 2, dtype=dtype, device=device).log2().reciprocal()


def ideal_gain(gains: Tensor, depth: int) -> Tensor:
    """The discounted gain of the ideal order, ``[B]``; documents without gain may be left out."""
    return (gains.topk(depth, dim=1).values * _discounts(depth, gains.dtype, gains.device)).sum(dim=1)
