"""Reciprocal rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rerank.measures.base import BinaryMeasure, positions, survival
from rerank.measures.smooth import behind, inside
from rerank.relaxations.base import Batch, RankIndicators, SoftRanks

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RR(BinaryMeasure):
    r"""Reciprocal rank of the first relevant document; its mean over queries is MRR.

    .. math:: \mathrm{RR@}k = \sum_{r=1}^{k} \frac{b_{o_r}}{r} \prod_{l<r} (1 - b_{o_l}), \quad
        b_i = [y_i \ge \mathrm{rel}]

    From rank indicators :math:`b_{o_r}` becomes :math:`\sum_j E_{rj} b_j`. From smooth ranks it is
    :math:`\sum_i b_i \frac{T_i}{r_i} \prod_{j \ne i} (1 - b_j \sigma(\beta (r_i - r_j)))`: the reciprocal rank of a
    document, as far as it is within the cut-off and no relevant document is ahead of it. From ranks of exact value it
    is :math:`1 / r_i` of the first relevant document within the cut-off. The limit of each is the exact measure.

    >>> RR().exact(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0, 1, 1]]))  # the first relevant document is second
    tensor([0.5000])

    Args:
        cutoff: k; None for the whole list.
        rel: the lowest grade that counts as relevant.
    """

    name: ClassVar[str] = "RR"

    def from_indicators(self, relaxation: RankIndicators, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        _, hits = self.hits(relaxation, scores, labels, mask)
        return (hits * survival(hits) / positions(hits.shape[1], scores)).sum(dim=1)

    def from_ranks(self, relaxation: SoftRanks, batch: Batch) -> Tensor:
        import torch

        ranks = relaxation.ranks(batch)
        relevant = batch.at_rows(self.relevant(batch.labels).to(ranks.dtype))
        hits = relevant * inside(relaxation, batch, ranks, self.cutoff)
        if relaxation.exact_ranks:
            exact = batch.at_rows(batch.exact)
            first = exact == exact.where(relevant > 0, torch.inf).amin(dim=1, keepdim=True)
            hits = hits * first
        else:
            logits = behind(relaxation, batch, ranks)
            itself = torch.eye(ranks.shape[1], dtype=torch.bool, device=ranks.device)
            none_ahead = torch.nn.functional.logsigmoid(-logits).masked_fill(itself, 0.0) * relevant[:, None, :]
            hits = hits * none_ahead.sum(dim=2).exp()
        return (hits / ranks).sum(dim=1)
