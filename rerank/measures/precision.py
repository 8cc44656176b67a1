"""Precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rerank.measures.base import BinaryMeasure
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
