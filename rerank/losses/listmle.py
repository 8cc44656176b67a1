"""ListMLE: the likelihood of the ideal order."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from rerank.losses.base import Loss, Target
from rerank.relaxations.backward import WithGradient
from rerank.relaxations.order import first, order_of

SPREAD = 500.0
"""How far apart the scores of a list may be for their exponentials to be sums of float64 numbers."""


class ListMLE(Loss):
    r"""Minus the Plackett-Luce log-likelihood of the order by descending label.

    .. math:: \ell = -\sum_i \Bigl[ s_{(i)} - \ln \sum_{l \ge i} e^{s_{(l)}} \Bigr]

    where (i) is the document at rank i by label; documents of one label are put in random order, per list and from
    its seed. Shapes: scores and labels ``[B, N]``. A list of equal labels (so also one without relevant documents)
    is left out.

    Source: Xia et al., "Listwise Approach to Learning to Rank: Theory and Algorithm", ICML 2008 (likelihood loss).

    >>> ListMLE()(torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([[2, 1, 0]]))  # one of six orders: ln 6
    tensor(1.7918)

    Args:
        reduction: mean or sum over the lists from which something can be learned, or none.
    """

    target: ClassVar[Target] = "values"
    always_masked: ClassVar[bool] = False

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None, seeds: Tensor | None) -> Tensor:
        real = torch.ones_like(labels, dtype=torch.bool) if mask is None else mask
        order, pads = order_of(labels, real, seeds, shuffle=True), None if mask is None else ~first(mask)  # pads last
        own = scores.detach().gather(1, order).double()
        own.sub_(own.amax(dim=1, keepdim=True))
        if own.device.type == "cpu" and bool(own.amin() >= -SPREAD):  # elsewhere it would be waited for
            losses, slopes = _by_sums(own, pads)
            gradient = torch.empty_like(scores).scatter_(1, order, slopes.to(scores.dtype))
            return WithGradient.apply(scores, losses.to(scores.dtype), gradient)
        scores = scores.gather(1, order)
        if pads is None:
            return (scores.flip(1).logcumsumexp(dim=1).flip(1) - scores).sum(dim=1)
        nothing = scores.detach().amin(dim=1, keepdim=True) - 1000  # below every score, yet finite: no NaN from -inf
        after = scores.where(~pads, nothing).flip(1).logcumsumexp(dim=1).flip(1)
        return (after - scores).masked_fill(pads, 0.0).sum(dim=1)


def _by_sums(own: Tensor, pads: Tensor | None) -> tuple[Tensor, Tensor]:
    r"""The loss of every list, and its gradient, from scores in order, float64, the highest 0 and no exponential 0.

    With :math:`c_i = \sum_{l \ge i} e^{s_l}` the gradient is :math:`e^{s_j} \sum_{i \le j} 1 / c_i - 1`.
    """
    if pads is not None:
        own.masked_fill_(pads, -torch.inf)
    powers = own.exp()
    sums = powers.flip(1).cumsum_(dim=1).flip(1)
    slopes = sums.reciprocal().cumsum_(dim=1).mul_(powers).sub_(1)
    losses = sums.log_().sub_(own)
    if pads is not None:
        slopes, losses = slopes.masked_fill_(pads, 0.0), losses.masked_fill_(pads, 0.0)
    return losses.sum(dim=1), slopes
