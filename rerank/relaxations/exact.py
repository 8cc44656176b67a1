"""No relaxation: exact ranks, from which the measures take their exact values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rerank.relaxations.base import RankIndicators
from rerank.relaxations.order import order_of

if TYPE_CHECKING:
    from torch import Tensor


class Exact(RankIndicators):
    """``E[r, j] = 1`` for the document at rank r, else 0; ties in index order. It has no gradient to train with.

    >>> scores, mask = torch.tensor([[0.2, 0.9]]), torch.ones(1, 2, dtype=torch.bool)
    >>> Exact().indicators(scores, mask, depth=2)
    tensor([[[0., 1.],
             [1., 0.]]])
    """

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        import torch

        order = order_of(scores, mask)[:, :depth]
        return torch.nn.functional.one_hot(order, scores.shape[1]).to(scores.dtype)

    def expected(self, scores: Tensor, values: Tensor, mask: Tensor, depth: int) -> Tensor:
        return values.gather(1, order_of(scores, mask)[:, :depth])
