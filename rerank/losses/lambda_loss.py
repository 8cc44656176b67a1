"""LambdaLoss: pairs weighted by what swapping them would do to a measure."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from rerank.errors import UserError
from rerank.losses.base import Loss, Reduction, has_ordered_pair
from rerank.losses.pair_sums import Weight, better, excess, pair_sum, take
from rerank.measures.base import ratio
from rerank.measures.binary import P
from rerank.measures.graded import ideal_gain, nDCG
from rerank.measures.names import parse
from rerank.relaxations.order import order_of
from rerank.settings.arguments import NotNegative, Positive

Weighting = Literal["lambdarank", "ndcg1", "ndcg2", "ndcg2++"]
Truncation = Literal["both", "either", "all"]


class LambdaLoss(Loss):
    r"""Logistic loss of the ordered pairs, each weighted by the gain at stake at their current ranks.

    .. math:: \ell = \sum_{(i, j): y_i > y_j} w_{ij} \log_2\bigl(1 + e^{-\sigma (s_i - s_j)}\bigr)

    With normalised gains :math:`g = G / \mathrm{IDCG@}k`, current ranks :math:`o` (ties at random, no gradient),
    :math:`D(r) = 1/\log_2(r + 1)` and :math:`\delta_{ij} = |D(d) - D(d + 1)|`, :math:`d = |o_i - o_j|`:

    - ``lambdarank``: :math:`w_{ij} = |g_i - g_j| \, |D(o_i) - D(o_j)|`
    - ``ndcg1``: :math:`w_{ij} = g_i \, D(o_i)`
    - ``ndcg2``: :math:`w_{ij} = |g_i - g_j| \, \delta_{ij}`
    - ``ndcg2++``: :math:`w_{ij} = |g_i - g_j| \, (\mu \, \delta_{ij} + |D(o_i) - D(o_j)|)`

    ``nDCG@k`` keeps the pairs whose current ranks are both at most k, and computes only these: a relevant document
    below rank k learns nothing then. ``truncation`` changes that. ``either`` keeps the pairs of which one rank is at
    most k, with D = 0 beyond k outside :math:`\delta`: LambdaMART's truncation, and with ``ndcg2`` the LambdaLoss of
    TF-Ranking (which takes the natural logarithm and multiplies by the padded length of the list). ``all`` keeps every
    pair of ``ndcg2``, divided by :math:`1 - D(\max(o_i, o_j))` where that rank is beyond k: TF-Ranking's second
    version. Without a cut-off all three are the same. For ``P@k``, :math:`w_{ij} = |b_i - b_j| \, |[o_i \le k] - [o_j
    \le k]| / k` whatever the weighting. Shapes: scores and labels ``[B, N]``. A list of equal labels (including one
    without relevant documents) is left out; one whose first k hold no ordered pair counts with loss 0.

    Source: Wang et al., "The LambdaLoss Framework for Ranking Metric Optimization", CIKM 2018 (NDCG-Loss1, NDCG-Loss2,
    NDCG-Loss2++; base-2 logarithm as there); Burges et al., "Learning to Rank with Nonsmooth Cost Functions", NIPS
    2006 (LambdaRank); Jagerman et al., "On Optimizing Top-K Metrics for Neural Ranking Models", SIGIR 2022 (``all``).

    >>> loss = LambdaLoss("lambdarank")
    >>> loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, 0]]))  # |1 - 0| |1 - 1 / log2(3)| log2(1 + 1)
    tensor(0.3691)

    Args:
        weighting: which weight, for nDCG.
        measure: ``nDCG``, ``nDCG@k`` (``dcg='exp-log2'`` for the gain 2^y - 1 that the papers train on) or ``P@k``.
        sigma: steepness of the logistic loss.
        mu: the share of ``ndcg2`` in ``ndcg2++``; 10 in the paper.
        truncation: which pairs ``nDCG@k`` keeps: ``both`` of the ranks at most k, ``either``, or ``all``; None is
            ``both``.
        reduction: mean or sum over the lists from which something can be learned, or none.
    """

    def __init__(
        self,
        weighting: Weighting = "ndcg2++",
        measure: str = "nDCG",
        sigma: Positive = 1.0,
        mu: NotNegative = 10.0,
        truncation: Truncation | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        parsed = parse(measure)
        if not isinstance(parsed, nDCG) and not (isinstance(parsed, P) and parsed.cutoff):
            raise UserError(f"measure {str(parsed)!r}: LambdaLoss knows nDCG, nDCG@k and P@k")
        self.measure: nDCG | P = parsed
        if truncation == "all" and weighting != "ndcg2":
            raise UserError(f"truncation 'all' is defined for the weighting 'ndcg2', not for {weighting!r}")
        if truncation is not None and not (isinstance(parsed, nDCG) and parsed.cutoff):
            raise UserError(f"truncation is for nDCG with a cut-off, not for {parsed}")
        self.truncation: Truncation = truncation or "both"
        self.weighting, self.sigma, self.mu = weighting, sigma, mu

    def arguments(self) -> dict[str, Any]:
        return super().arguments() | {"measure": str(self.measure)}

    def learnable(self, labels: Tensor, mask: Tensor) -> Tensor:
        return has_ordered_pair(self.measure.relevant(labels) if isinstance(self.measure, P) else labels, mask)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        measure = self.measure
        if isinstance(measure, nDCG):
            gains, depth = measure.gain(labels), measure.depth(mask)
            gains = ratio(gains, ideal_gain(gains, depth)[:, None])
            if self.truncation != "both":
                depth = scores.shape[1]
        else:
            gains, depth = measure.relevant(labels).to(scores.dtype), scores.shape[1]
        order = order_of(scores, mask, seeds, shuffle=True, depth=depth)
        scores, gains, mask = take(order, scores, gains, mask)
        return pair_sum(scores * self.sigma, better(gains, mask), self._weight(gains, mask)) / math.log(2)

    def _weight(self, gains: Tensor, mask: Tensor) -> Weight:
        above = excess(gains, mask)  # |g_i - g_j| of the ordered pairs
        depth = gains.shape[1]
        k = self.measure.cutoff or depth
        discounts, steps = _by_rank(depth, gains.dtype, gains.device)
        ranks = torch.arange(depth, device=gains.device)
        inside = ranks < k
        if isinstance(self.measure, P):
            shares = inside.to(gains.dtype) * (1 / k)
            return lambda places: above(places).mul_((shares[places][:, :, None] - shares).abs_())

        def apart(places: Tensor) -> Tensor:
            return steps[depth - 1 - places]

        if self.truncation == "all":
            scale = torch.where(inside, 1.0, 1 / (1 - discounts.clamp(max=0.75)))  # D(2) is .63: only D(1) is cut
            return lambda places: (
                above(places).mul_(apart(places)).mul_(scale[torch.maximum(places[:, :, None], ranks)])
            )
        kept = discounts if self.truncation == "both" else discounts.where(inside, 0.0)

        def swapped(places: Tensor) -> Tensor:
            return (kept[places][:, :, None] - kept).abs_()

        weights: dict[str, Weight] = {
            "lambdarank": lambda places: above(places).mul_(swapped(places)),
            "ndcg1": lambda places: above(places).sign_().mul_((gains * kept).gather(1, places)[:, :, None]),
            "ndcg2": lambda places: above(places).mul_(apart(places)),
            "ndcg2++": lambda places: swapped(places).add_(apart(places), alpha=self.mu).mul_(above(places)),
        }
        weight = weights[self.weighting]
        if self.truncation == "both":
            return weight
        return lambda places: weight(places).mul_(inside[places][:, :, None] | inside)


@lru_cache(maxsize=32)
def _by_rank(depth: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """``D(r)`` of the ranks from 1, ``[depth]``; and ``|D(d) - D(d + 1)|`` of two ranks d apart, ``[depth, depth]``.

    The second is upside down, the first rank in the last row: a view, of windows on one vector, whose middle is 0.
    """
    ranks = torch.arange(1, depth + 2, dtype=dtype, device=device)
    discounts = 1 / (ranks + 1).log2()
    steps = discounts[:-1] - discounts[1:]
    around = torch.cat([steps[:-1].flip(0), steps.new_zeros(1), steps[:-1]])
    return discounts[:-1], around.unfold(0, depth, 1)
