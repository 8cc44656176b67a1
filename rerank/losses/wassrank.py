"""WassRank: the cost of transporting the scores' probability mass to where the labels want it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rerank.losses.base import Loss, Reduction
from rerank.losses.pair_sums import take
from rerank.settings.arguments import Count, NotNegative, Positive

NOTHING = -1e30
"""Logarithm of no mass, finite so that no NaN can arise."""

MOST = 1e30
"""Largest gain: 4^50 is larger, and 4^64 is not a float32."""


class WassRank(Loss):
    r"""Entropic optimal transport between the softmax of the scores and the softmax of the labels.

    .. math:: \ell = \langle P, C \rangle, \quad P = \operatorname{Sinkhorn}\bigl(e^{-\lambda C};\,
        \operatorname{softmax}(s), \operatorname{softmax}(y)\bigr), \quad C_{ij} = |\gamma_i - \gamma_j|, \quad
        \gamma_i = a^{y_i} - 1 \text{ if } y_i > 0 \text{ else } -g

    with ``penalty`` as the cost between different documents of one grade and 0 from a document to itself. The plan
    comes from a fixed number of rounds in the log domain (rows, then columns); the gradient is that of the unrolled
    rounds. Shapes: scores and labels ``[B, N]``. A list of equal labels (including one without relevant documents)
    is left out.

    The cost depends on grades alone, so a round works on sums per grade: O(N + L²) for L grades.

    Source: Yu et al., "WassRank: Listwise Document Ranking Using Optimal Transport Theory", WSDM 2019.

    >>> loss = WassRank(gain_base=2, gap=1, penalty=0)  # gains of 1 and -1: a cost of 2
    >>> loss(torch.tensor([[50.0, -50.0]]), torch.tensor([[1, 0]]))  # the labels want 1 / (1 + e) of the mass moved
    tensor(0.5379)

    Args:
        gain_base: base ``a`` of the gain of a relevant document.
        gap: minus the gain of a document of grade 0.
        penalty: cost between two documents of one grade; e in the paper.
        lam: inverse strength ``λ`` of the entropic regularisation.
        iterations: Sinkhorn rounds.
        reduction: mean or sum over the lists from which something can be learned, or none.
    """

    def __init__(
        self,
        gain_base: Positive = 4.0,
        gap: NotNegative = 100.0,
        penalty: NotNegative = math.e,
        lam: Positive = 0.1,
        iterations: Count = 20,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        self.gain_base, self.gap, self.penalty = gain_base, gap, penalty
        self.lam, self.iterations = lam, iterations

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        scores, labels, mask = take(labels.argsort(dim=1), scores, labels, mask)
        changes = labels[:, 1:] != labels[:, :-1]
        grade = torch.nn.functional.pad(changes.long().cumsum(dim=1), (1, 0))
        levels = int(grade[:, -1].amax()) + 1
        gamma = scores.new_zeros(len(scores), levels).scatter(1, grade, self._gains(labels))
        cost = (gamma[:, :, None] - gamma[:, None, :]).abs()
        same = torch.eye(levels, dtype=torch.bool, device=scores.device)
        kernel = (-self.lam * cost).masked_fill(same, -self.lam * self.penalty)
        itself = math.log(-math.expm1(-self.lam * self.penalty)) if self.penalty > 0 else NOTHING

        def total(values: Tensor) -> Tensor:  # log of the sum of e^values over the documents of each grade: [B, L]
            top = values.detach().new_full((len(values), levels), NOTHING)
            top = top.scatter_reduce(1, grade, values.detach(), "amax")
            sums = torch.zeros_like(top).scatter_add(1, grade, (values - top.gather(1, grade)).exp())
            return sums.clamp(min=torch.finfo(sums.dtype).tiny).log() + top

        def spread(values: Tensor) -> Tensor:  # log of (kernel matrix times e^values), per document: [B, N]
            others = (kernel + total(values)[:, None, :]).logsumexp(dim=2)
            return torch.logaddexp(others.gather(1, grade), values + itself)

        have = _log_mass(scores, mask)
        want = _log_mass(labels, mask)
        left, right = torch.zeros_like(have), torch.zeros_like(want).masked_fill(~mask, NOTHING)
        for _ in range(self.iterations):
            left = have - spread(right)
            right = want - spread(left)
        plan = (total(left)[:, :, None] + kernel + total(right)[:, None, :]).exp()
        between = (plan * cost).sum(dim=(1, 2))
        stays = (left + right).exp().sum(dim=1) * math.exp(-self.lam * self.penalty)
        return between + self.penalty * ((plan * same).sum(dim=(1, 2)) - stays)

    def _gains(self, labels: Tensor) -> Tensor:
        return torch.where(labels > 0, (self.gain_base**labels - 1).clamp(max=MOST), -self.gap)


def _log_mass(values: Tensor, mask: Tensor) -> Tensor:
    return values.masked_fill(~mask, NOTHING).log_softmax(dim=1).masked_fill(~mask, NOTHING)
