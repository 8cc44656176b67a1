"""Optimal transport: rank indicators as a regularised plan between scores and ranks."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from rerank.relaxations.base import RankIndicators
from rerank.relaxations.order import first
from rerank.relaxations.sinkhorn import balanced_product
from rerank.settings.arguments import Count, Range

SHARP = 0.03
"""With a smaller epsilon the plan is computed in float64: exp(-1 / epsilon) would underflow in float32."""


class OptimalTransport(RankIndicators):
    r"""Ranks by entropy-regularised optimal transport (Cuturi, Teboul and Vert 2019).

    .. math:: E = N \cdot \arg\min_P \sum_{rj} P_{rj} (z_j - a_r)^2 - \epsilon H(P), \quad
        z = \sigma\bigl((s - \bar s) / \mathrm{sd}(s)\bigr),\ a_r = \frac{N - r}{N - 1}

    over plans P with uniform marginals, by a fixed number of Sinkhorn iterations (columns, then rows). Standardised
    scores make it blind to their scale. Tied documents share their ranks evenly. A small epsilon needs more
    iterations: its limit is the exact measure only when the iterations have converged.

    Memory is that of a few N x N matrices a list.

    >>> scores, mask = torch.tensor([[1.0, 2.0]]), torch.ones(1, 2, dtype=torch.bool)
    >>> OptimalTransport(epsilon=0.5).indicators(scores, mask, depth=1)  # z = sigmoid(-1), sigmoid(1)
    tensor([[[0.2841, 0.7159]]])
    >>> torch.sigmoid(torch.tensor([0.2689**2 - 0.7311**2, 0.7311**2 - 0.2689**2]) / 0.5)
    tensor([0.2841, 0.7159])

    Args:
        epsilon: strength of the entropy, at least .004; nearly exact there, with enough iterations.
        iterations: Sinkhorn iterations.
    """

    def __init__(self, epsilon: Annotated[float, Range(0.004)] = 0.1, iterations: Count = 50) -> None:
        self.epsilon, self.iterations = epsilon, iterations

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        every = torch.diag_embed(mask.to(scores.dtype))
        return self._balanced(scores, every, mask)[:, :, :depth].transpose(1, 2)

    def expected(self, scores: Tensor, values: Tensor, mask: Tensor, depth: int) -> Tensor:
        return self._balanced(scores, values[:, None, :], mask)[:, 0, :depth]

    def _balanced(self, scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        dtype = torch.float64 if self.epsilon < SHARP else scores.dtype
        logits = self._logits(scores.to(dtype), mask)
        return balanced_product(logits, values.to(dtype), first(mask), mask, self.iterations).to(scores.dtype)

    def _logits(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Compute minus the cost of each document at each rank, over epsilon: ``[B, N, N]``."""
        count = mask.sum(dim=1, keepdim=True)
        ranks = torch.arange(1, scores.shape[1] + 1, device=scores.device)
        anchors = (count - ranks) / (count - 1).clamp(min=1).to(scores.dtype)
        return (_squashed(scores, mask)[:, None, :] - anchors[:, :, None]).square() / -self.epsilon


def _squashed(scores: Tensor, mask: Tensor) -> Tensor:
    """Compute the logistic function of the standardised scores, 1/2 if all are equal: ``[B, N]``."""
    count = mask.sum(dim=1, keepdim=True).clamp(min=1)
    mean = scores.masked_fill(~mask, 0.0).sum(dim=1, keepdim=True) / count
    centred = (scores - mean).masked_fill(~mask, 0.0)
    variance = centred.square().sum(dim=1, keepdim=True) / count
    varies = variance > 1e-36  # the root of less has no finite derivative in float32
    return torch.sigmoid(centred / torch.where(varies, variance, 1.0).sqrt())
