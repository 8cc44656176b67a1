"""ListAP: average precision from a histogram of the scores."""

from __future__ import annotations

import torch
from torch import Tensor

from rerank.losses.base import Loss, Reduction, has_ordered_pair
from rerank.settings.ranges import Positive, Several

LEAST = 1e-30
"""Scores of a list that are all closer together count as tied: the gradient is in units of 1 over their distance."""


class ListAP(Loss):
    r"""One minus the quantised average precision.

    Scores are min-max scaled per list to ``x`` in [0, 1] and shared out to ``M`` bins of centres
    :math:`c_m = 1 - (m - 1)\Delta`, :math:`\Delta = 1/(M - 1)`, by triangular kernels
    :math:`\delta_m(x) = \max(0, 1 - |x - c_m|/\Delta)`:

    .. math:: \ell = 1 - \sum_m \hat P_m \, \Delta \hat r_m, \quad
        \hat P_m = \frac{\sum_{l \le m} \sum_i \delta_l(x_i) b_i}{\sum_{l \le m} \sum_i \delta_l(x_i)}, \quad
        \Delta \hat r_m = \frac{\sum_i \delta_m(x_i) b_i}{\sum_i b_i}, \quad b_i = [y_i \ge rel]

    Shapes: scores and labels ``[B, N]``. A list without relevant documents, or without others, is left out. A document
    touches two bins, so time and memory are O(N + M). The paper's scores are similarities with known bounds; here the
    scaling supplies these, so the loss ignores shift and scale of the scores.

    Source: Revaud et al., "Learning with Average Precision: Training Image Retrieval with a Listwise Loss", ICCV
    2019, section 3 (quantised AP).

    >>> ListAP()(torch.tensor([[2.0, 1.0]]), torch.tensor([[0, 1]]))  # the relevant document is second: 1 - 1/2
    tensor(0.5000)

    Args:
        bins: the number of bins ``M``, at least 2.
        rel: the smallest grade that counts as relevant.
        reduction: mean or sum over the lists from which something can be learned, or none.
    """

    def __init__(self, bins: Several = 25, rel: Positive = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.bins = bins
        self.rel = rel

    def learnable(self, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        return has_ordered_pair(labels >= self.rel, mask)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        real, relevant = mask.to(scores.dtype), ((labels >= self.rel) & mask).to(scores.dtype)
        highest = scores.masked_fill(~mask, -torch.inf).amax(dim=1, keepdim=True)
        lowest = scores.masked_fill(~mask, torch.inf).amin(dim=1, keepdim=True)
        spread = highest - lowest
        apart = spread > LEAST
        scaled = (highest - scores) / torch.where(apart, spread, 1.0)
        place = torch.where(mask & apart, scaled, 0.0) * (self.bins - 1)  # 0 is the bin of the best score
        bin_ = place.detach().long().clamp(0, self.bins - 2)
        right = place - bin_

        def histogram(weights: Tensor) -> Tensor:
            empty = scores.new_zeros(len(scores), self.bins)
            return empty.scatter_add(1, bin_, weights * (1 - right)).scatter_add(1, bin_ + 1, weights * right)

        hits, total = histogram(relevant), histogram(real)
        seen = total.cumsum(dim=1)
        precision = hits.cumsum(dim=1) / torch.where(seen > 0, seen, 1.0)
        return 1 - (precision * hits).sum(dim=1) / relevant.sum(dim=1).clamp(min=1)
