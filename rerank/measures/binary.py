"""Measures that only ask whether a document is relevant: precision, recall, success, average precision, RR."""

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

    It is divided by k even where the list is shorter, and by the length of the list where there is no cut-off. From
    rank indicators :math:`b_{o_r}` becomes :math:`\sum_j E_{rj} b_j`; from smooth ranks the measure is
    :math:`\frac{1}{k} \sum_i b_i T_i` (:math:`T_i`: how far i is within the cut-off), from ranks of exact value
    :math:`\frac{1}{k} \sum_{\bar o_i \le k} b_i \bar o_i / r_i` (Yu 2020, Eq 13). Without a cut-off the
    measure does not depend on the order: smooth ranks have no gradient then, and that of the other relaxations is what
    they leave of a constant (ranks of exact value have the one that Yu 2020 trains with).

    >>> P(4).exact(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1, 0, 1]]))  # 2 / 4
    tensor([0.5000])

    Args:
        cutoff: k; None for the whole list.
        rel: the lowest grade that counts as relevant.
    """

    name: ClassVar[str] = "P"

    def _size(self, labels: Tensor, mask: Tensor) -> Tensor:
        """What the number of relevant documents is divided by, ``[B, 1]``."""
        if self.cutoff is None:
            return mask.sum(dim=1, keepdim=True).clamp(min=1).to(labels.dtype)
        return labels.new_full((labels.shape[0], 1), self.cutoff)

    def from_indicators(self, relaxation: RankIndicators, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        weights = first(mask, self.depth(mask)) / self._size(labels, mask)
        return relaxation.weighted(scores, self.relevant(labels).to(scores.dtype), weights, mask)

    def from_ranks(self, relaxation: SoftRanks, batch: Batch) -> Tensor:
        return (self.within(relaxation, batch) / self._size(batch.labels, batch.mask)).sum(dim=1)


@dataclass(frozen=True)
class R(BinaryMeasure):
    r"""Recall: the share of the relevant documents that are among the first k.

    .. math:: \mathrm{R@}k = \frac{1}{R} \sum_{r=1}^{k} b_{o_r}, \quad b_i = [y_i \ge \mathrm{rel}],\ R = \sum_i b_i

    In training R counts the relevant documents of the list, in evaluation all that are judged relevant. From rank
    indicators :math:`b_{o_r}` becomes :math:`\sum_j E_{rj} b_j`; from smooth ranks the measure is
    :math:`\frac{1}{R} \sum_i b_i T_i` (:math:`T_i`: how far i is within the cut-off), from ranks of exact value
    :math:`\frac{1}{R} \sum_{\bar o_i \le k} b_i \bar o_i / r_i`, as for :class:`~rerank.measures.P`.

    >>> R(2).exact(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1, 0, 1]]))  # one of two
    tensor([0.5000])

    Args:
        cutoff: k; a name has to have one.
        rel: the lowest grade that counts as relevant.
    """

    name: ClassVar[str] = "R"
    needs_cutoff: ClassVar[bool] = True

    def from_indicators(self, relaxation: RankIndicators, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        relevant = self.relevant(labels).to(scores.dtype)
        weights = first(mask, self.depth(mask)) / relevant.sum(dim=1, keepdim=True).clamp(min=1)
        return relaxation.weighted(scores, relevant, weights, mask)

    def from_ranks(self, relaxation: SoftRanks, batch: Batch) -> Tensor:
        relevant = self.relevant(batch.labels).to(batch.labels.dtype)
        return ratio(self.within(relaxation, batch).sum(dim=1), relevant.sum(dim=1))


@dataclass(frozen=True)
class Success(BinaryMeasure):
    r"""Success: whether a relevant document is among the first k; its mean over queries is the hit rate.

    .. math:: \mathrm{Success@}k = 1 - \prod_{r=1}^{k} (1 - b_{o_r}), \quad b_i = [y_i \ge \mathrm{rel}]

    From rank indicators :math:`b_{o_r}` becomes :math:`\sum_j E_{rj} b_j`. From soft ranks it is
    :math:`1 - \prod_i (1 - b_i T_i)`, where :math:`T_i` is how far i is within the cut-off; from ranks of exact value
    :math:`\bar o_i / r_i` within it, and 0 beyond. The limit of each is the exact measure.

    >>> Success(2).exact(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0, 1, 1]]))
    tensor([1.])

    Args:
        cutoff: k; a name has to have one.
        rel: the lowest grade that counts as relevant.
    """

    name: ClassVar[str] = "Success"
    needs_cutoff: ClassVar[bool] = True

    def from_indicators(self, relaxation: RankIndicators, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        _, hits = self.hits(relaxation, scores, labels, mask)
        return _any(hits)

    def from_ranks(self, relaxation: SoftRanks, batch: Batch) -> Tensor:
        return _any(self.within(relaxation, batch))


def _any(chances: Tensor) -> Tensor:
    """``1 - prod(1 - p)`` along the last dimension: the sum of the chances that each is the first."""
    return (chances * survival(chances)).sum(dim=1)


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
