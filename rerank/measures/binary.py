"""Measures of binary relevance: precision, average precision, reciprocal rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rerank.measures.base import BinaryMeasure, behind, inside, positions, ratio, survival
from rerank.relaxations.base import Batch, RankIndicators, SoftRanks
from rerank.relaxations.order import first

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class P(BinaryMeasure):
    r"""Precision: the share of relevant documents among the first k.

    .. math:: \mathrm{P@}k = \frac{1}{k} \sum_{r=1}^{k} b_{o_r}, \quad b_i = [y_i \ge \mathrm{rel}]

    It is divided by k even if the list is shorter, and by the length of the list if there is no cut-off. From
    rank indicators :math:`b_{o_r}` becomes :math:`\sum_j E_{rj} b_j`; from smooth ranks the measure is
    :math:`\frac{1}{k} \sum_i b_i T_i` (:math:`T_i`: how far i is within the cut-off), from ranks of exact value
    :math:`\frac{1}{k} \sum_{\bar o_i \le k} b_i \bar o_i / r_i` (Yu 2020, Eq 13). Without a cut-off the
    measure does not depend on the order, so smooth ranks have no gradient; ranks of exact value have the one that Yu
    2020 trains with.

    >>> P(4).exact(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1, 0, 1]]))  # 2 / 4
    tensor([0.5000])

    Args:
        cutoff: k; None for the whole list.
        rel: the lowest grade that counts as relevant.
    """

    name: ClassVar[str] = "P"

    def _size(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Return the divisor of the number of relevant documents, ``[B, 1]``."""
        if self.cutoff is None:
            return mask.sum(dim=1, keepdim=True).clamp(min=1).to(labels.dtype)
        return labels.new_full((labels.shape[0], 1), self.cutoff)

    def from_indicators(self, relaxation: RankIndicators, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        weights = first(mask, self.depth(mask)) / self._size(labels, mask)
        return relaxation.weighted(scores, self.relevant(labels).to(scores.dtype), weights, mask)

    def from_ranks(self, relaxation: SoftRanks, batch: Batch) -> Tensor:
        return (self.within(relaxation, batch) / self._size(batch.labels, batch.mask)).sum(dim=1)


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
