"""ListMLE: the likelihood of the ideal order."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from rerank.losses.base import Loss, Target
from rerank.losses.pair_sums import has_ordered_pair, take
from rerank.relaxations.backward import full_precision
from rerank.relaxations.order import order_of

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

    def learnable(self, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """Lists with unequal labels."""
        return has_ordered_pair(labels, mask)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        """Minus the log-likelihood of a list."""
        scores, mask = take(order_of(labels, mask, seeds, shuffle=True), scores, mask)
        least, most = scores.detach().aminmax(dim=1, keepdim=True)
        if scores.device.type == "cpu" and bool((most - least <= SPREAD).all()):  # elsewhere it would be waited for
            return _LogLikelihood.apply(scores, mask)
        nothing = least - 1000  # below every score, yet finite: no NaN from -inf
        after = scores.where(mask, nothing).flip(1).logcumsumexp(dim=1).flip(1)
        return (after - scores).masked_fill(~mask, 0.0).sum(dim=1)


class _LogLikelihood(torch.autograd.Function):
    r"""By sums of exponentials, in float64, where no list's scores are so far apart that these would be 0.

    With :math:`c_i = \sum_{l \ge i} e^{s_l}` the gradient is :math:`e^{s_j} \sum_{i \le j} 1 / c_i - 1`.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor) -> Tensor:
        own = scores.double()
        own = own - own.amax(dim=1, keepdim=True)
        powers = own.exp().masked_fill_(~mask, 0.0)
        sums = powers.flip(1).cumsum_(dim=1).flip(1)
        if ctx.needs_input_grad[0]:
            shares = sums.reciprocal().masked_fill_(~mask, 0.0).cumsum_(dim=1)
            ctx.save_for_backward(shares.mul_(powers).sub_(mask.double()).to(scores.dtype))
        logs = sums.masked_fill_(~mask, 1.0).log_().sum(dim=1)
        return (logs - own.masked_fill_(~mask, 0.0).sum(dim=1)).to(scores.dtype)

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (slopes,) = ctx.saved_tensors
        return slopes * gradient[:, None], None
