"""ListMLE: the likelihood of the ideal order."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from rerank.losses.base import Loss, Target
from rerank.losses.pair_sums import has_ordered_pair, take
from rerank.relaxations.order import order_of


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
        nothing = scores.detach().amin(dim=1, keepdim=True) - 1000  # below every score, yet finite: no NaN from -inf
        after = scores.where(mask, nothing).flip(1).logcumsumexp(dim=1).flip(1)
        return (after - scores).masked_fill(~mask, 0.0).sum(dim=1)
