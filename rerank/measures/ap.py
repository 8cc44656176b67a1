"""Average precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rerank.measures.base import BinaryMeasure, positions, ratio
from rerank.measures.smooth import behind, inside
from rerank.relaxations.base import Batch, RankIndicators, SoftRanks

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AP(BinaryMeasure):
    r"""Average precision; its mean over queries is MAP.

    .. math:: \mathrm{AP@}k = \frac{1}{R} \sum_{r=1}^{k} b_{o_r} \frac{1}{r} \sum_{l \le r} b_{o_l}, \quad
        b_i = [y_i \ge \mathrm{rel}],\ R = \sum_i b_i

    From rank indicators :math:`b_{o_r}` becomes :math:`\sum_j E_{rj} b_j` (SmoothI, Eq 11). From smooth ranks it is
    :math:`\frac{1}{R} \sum_i b_i \frac{T_i}{r_i} (1 + \sum_{j \ne i} b_j \sigma(\beta (r_i - r_j)))` (Qin, Liu and Li
    2010), from ranks of exact value
    :math:`\frac{1}{R} \sum_i b_i \frac{\bar o_i}{r_i} \sum_{l=\bar o_i}^{k} b_{o_l} / l` (Yu 2020, Eq 30).

    >>> AP().exact(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1, 0, 1]]))  # (1/1 + 2/3) / 2
    tensor([0.8333])

    Args:
        cutoff: k; None for the whole list.
        rel: the lowest grade that counts as relevant.
    """

    name: ClassVar[str] = "AP"

    def from_indicators(self, relaxation: RankIndicators, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        relevant, hits = self.hits(relaxation, scores, labels, mask)
        precision = hits.cumsum(dim=1) / positions(hits.shape[1], scores)
        return ratio((hits * precision).sum(dim=1), relevant.sum(dim=1))

    def from_ranks(self, relaxation: SoftRanks, batch: Batch) -> Tensor:
        ranks = relaxation.ranks(batch)
        relevant = batch.at_rows(self.relevant(batch.labels).to(ranks.dtype))
        hits = relevant * inside(relaxation, batch, ranks, self.cutoff)
        if relaxation.exact_ranks:
            exact = batch.at_rows(batch.exact)
            later = (exact[:, None, :] >= exact[:, :, None]).to(ranks.dtype)
            share = (later * (hits / exact)[:, None, :]).sum(dim=2)  # no matmul: autocast
            value = relevant * share * exact / ranks  # share is 0 beyond the cut-off, but has a gradient
        else:
            ahead = behind(relaxation, batch, ranks).sigmoid() * relevant[:, None, :]
            value = hits / ranks * (ahead.sum(dim=2) + 0.5)  # a document counts as 1 itself, its own sigmoid as 1/2
        return ratio(value.sum(dim=1), relevant.sum(dim=1))
