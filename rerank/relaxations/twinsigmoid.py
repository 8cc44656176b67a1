"""Twin-sigmoid: exact ranks forward, sigmoid gradients backward."""

from __future__ import annotations

from torch import Tensor

from rerank.relaxations.base import Batch, SoftRanks
from rerank.relaxations.pair_ranks import Gradient, twin_ranks
from rerank.relaxations.spread import Spread, steepness
from rerank.settings.ranges import Positive


class TwinSigmoid(SoftRanks):
    r"""Exact ranks with the gradient of a second, smooth sigmoid (Yu, "Optimize What You Evaluate With", 2020).

    The forward pass has the exact rank, ties broken at random (Eq 12 with tie breaking), so that the value is the
    exact measure. With :math:`z = \sigma(\alpha (s_i - s_j))` and :math:`u = \operatorname{sign}(y_i - y_j)` the
    backward pass has

    .. math:: \frac{\partial r_i}{\partial s_i} = -\sum_{j \ne i} w_{ij}, \quad
        \frac{\partial r_i}{\partial s_j} = w_{ij}

    where w is :math:`\alpha z (1 - z)` for gradient 1 (Eq 11), u times that for 2 (Eq 20), and for 3 (Eq 21)
    :math:`2 \alpha (1 - z)` if u > 0, :math:`-2 \alpha z` if u < 0, else 0. Only the rows of
    relevant documents are computed: time is linear in relevant documents x N.

    The cut-off takes the exact rank and has no gradient, so that a list whose relevant documents are all beyond it
    teaches nothing. ``alpha="spread"`` is ours, and what this library's evidence is about: alpha is 3 / min(1, sd(s)),
    with sd the spread of the list's scores (at least .001, constant), and the cut-off has the gradient of
    :math:`\sigma(\alpha (s_i - c))`, with c as for Approx. The value stays the exact measure.

    >>> scores = torch.tensor([[1.0, 4.0]]).log().requires_grad_()
    >>> mask, rows = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0]])
    >>> ranks = TwinSigmoid(gradient=1, alpha=1).ranks(Batch(scores, torch.tensor([[1.0, 0.0]]), mask, rows))
    >>> ranks.tolist(), torch.autograd.grad(ranks, scores)  # exact; z (1 - z) with z = sigmoid(-ln 4) = 1/5
    ([[2.0]], (tensor([[-0.1600,  0.1600]]),))

    Args:
        gradient: which backward weight, 1, 2 or 3.
        alpha: steepness of the backward sigmoid; 1 in the paper. "spread" takes it from the spread of scores.
    """

    exact_ranks = True

    def __init__(self, gradient: Gradient = 3, alpha: Positive | Spread = 1.0) -> None:
        self.gradient = gradient
        self.alpha = alpha
        self.by_scores = isinstance(alpha, str)

    def ranks(self, batch: Batch) -> Tensor:
        return twin_ranks(batch, steepness(batch.spread) if isinstance(self.alpha, str) else self.alpha, self.gradient)
