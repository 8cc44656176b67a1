"""Recall and success."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rerank.measures.base import BinaryMeasure, ratio, survival
from rerank.relaxations.base import Batch, RankIndicators, SoftRanks
from rerank.relaxations.order import first

if TYPE_CHECKING:
    from torch import Tensor


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
        """The relevance expected at the ranks, over all that there is."""
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
        """One minus the chance of no relevant document at any of the ranks."""
        _, hits = self.hits(relaxation, scores, labels, mask)
        return _any(hits)

    def from_ranks(self, relaxation: SoftRanks, batch: Batch) -> Tensor:
        """One minus the chance that no relevant document is within the cut-off."""
        return _any(self.within(relaxation, batch))


def _any(chances: Tensor) -> Tensor:
    """``1 - prod(1 - p)`` along the last dimension: the sum of the chances that each is the first."""
    return (chances * survival(chances)).sum(dim=1)
