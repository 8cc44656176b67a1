"""ListMLE: the likelihood of the ideal order."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from rerank.losses.base import Loss, Target
from rerank.losses.pair_sums import Known
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
        validate: look at the values of scores and labels, and refuse what is not finite.
    """

    target: ClassVar[Target] = "values"

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        """Minus the log-likelihood of a list."""
        order = order_of(labels, mask, seeds, shuffle=True)
        given, mask = scores.detach(), first(mask)  # pads come last
        least, most = given.amin(dim=1, keepdim=True), given.amax(dim=1, keepdim=True)
        if given.device.type == "cpu" and bool((most - least <= SPREAD).all()):  # elsewhere it would be waited for
            return Known.apply(scores, *_by_sums(given, mask, order))
        nothing = least - 1000  # below every score, yet finite: no NaN from -inf
        scores = scores.gather(1, order)
        after = scores.where(mask, nothing).flip(1).logcumsumexp(dim=1).flip(1)
        return (after - scores).masked_fill(~mask, 0.0).sum(dim=1)


def _by_sums(scores: Tensor, mask: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    r"""The loss of every list, and its gradient, in float64, where no exponential is 0.

    With :math:`c_i = \sum_{l \ge i} e^{s_l}` the gradient is :math:`e^{s_j} \sum_{i \le j} 1 / c_i - 1`.
    """
    pads, own = ~mask, scores.gather(1, order).double()
    own.sub_(own.amax(dim=1, keepdim=True)).masked_fill_(pads, -torch.inf)
    powers = own.exp()
    sums = powers.flip(1).cumsum_(dim=1).flip(1)
    slopes = sums.reciprocal().cumsum_(dim=1).mul_(powers).sub_(1).masked_fill_(pads, 0.0)
    losses = sums.log_().sub_(own).masked_fill_(pads, 0.0).sum(dim=1).to(scores.dtype)
    return losses, torch.empty_like(scores).scatter_(1, order, slopes.to(scores.dtype))
