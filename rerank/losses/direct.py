"""The direct-metric loss: a measure × a relaxation."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from rerank.errors import UserError
from rerank.losses.base import Loss, Reduction
from rerank.measures.base import Measure
from rerank.measures.graded import nDCG
from rerank.measures.names import name_of, parse
from rerank.relaxations.base import GainOf, RankIndicators, Relaxation, SoftRanks, spread
from rerank.settings.ranges import NotNegative

if TYPE_CHECKING:
    from torch import Tensor

RIGHT = 1e-5
"""A list whose measure is as close as this to 1 is right, but for rounding."""


class DirectMetric(Loss):
    r"""One minus a measure, made differentiable by a relaxation.

    .. math:: \ell = 1 - \mathrm{measure}(E(s), y) \quad\text{or}\quad \ell = 1 - \mathrm{measure}(r(s), y)

    from rank indicators E or soft ranks r. The measure's name decides gain and relevance threshold, as in
    ir-measures: ``nDCG@10`` has the linear gain y, ``nDCG(dcg='exp-log2')@10`` has 2^y - 1, ``AP(rel=2)`` counts
    grades from 2. Shapes: scores and labels ``[B, N]``. A list without a relevant document is left out.

    >>> from rerank.relaxations import TwinSigmoid
    >>> loss = DirectMetric("nDCG@10", TwinSigmoid())  # has the exact value
    >>> loss(torch.tensor([[2.0, 1.0]]), torch.tensor([[0, 1]]))  # 1 - 1 / log2(3)
    tensor(0.3691)

    Args:
        measure: an ir-measures name or object: P, AP, nDCG, nERR or RR, with or without a cut-off; R or
            Success with one.
        relaxation: what stands in for sorting.
        gain_of: what nDCG takes the gain of when it is computed from rank indicators: "documents" (the expected
            gain) or "ranks" (the gain of the expected grade); None leaves it to the relaxation.
        reduction: mean or sum over the lists from which something can be learned, or none.
        balance: gives the gradient on every list's scores the norm ``(1 - exact measure)^balance``: with 0 all lists
            count alike, with 1 a list counts less the better its measure is, and a perfect one not at all. None leaves
            the norms that the measure gives.

    Raises:
        UserError: an unknown measure or parameter.
        ValueError: the relaxation is not defined for the measure.
    """

    shorthand: str = ""
    """The call of a shorthand that made it, if one did."""

    def __init__(
        self,
        measure: str,
        relaxation: Relaxation,
        gain_of: GainOf | None = None,
        reduction: Reduction = "mean",
        balance: NotNegative | None = None,
    ) -> None:
        super().__init__(reduction)
        self.balance = balance
        self.measure = parse(measure)
        self.measure.check(relaxation)
        self.relaxation = relaxation if gain_of is None else _taking(gain_of, self.measure, relaxation)

    def __repr__(self) -> str:
        """A call that makes it, as it was written."""
        return self.shorthand or super().__repr__()

    def learnable(self, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        relevant = self.measure.relevant(labels)
        return (relevant if mask is None else relevant & mask).any(dim=1)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        import torch

        leaf = scores
        if balanced := self.balance is not None and torch.is_grad_enabled() and scores.requires_grad:
            leaf = scores.detach().requires_grad_()
        losses = 1 - self.measure.compute(self.relaxation, leaf, labels, mask, seeds)
        if not balanced or not losses.requires_grad:
            return losses
        gradient = self._balanced(losses, leaf, labels, mask)
        return losses.detach() + ((scores - scores.detach()) * gradient).sum(dim=1)

    def _balanced(self, losses: Tensor, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """The gradient of the losses on the scores, each list's of its norm; 0 where it is but rounding: ``[B, N]``.

        It is taken list by list, so that batch mates, padding and weights of lists count as ever. One that changes the
        loss by less than rounding does, over the distance between scores, has no direction.
        """
        import torch

        assert self.balance is not None
        (gradient,) = torch.autograd.grad(losses.sum(), scores)
        gradient = gradient.masked_fill(~mask, 0.0)
        worst = labels.argsort(dim=1)  # tied documents count with the least relevant first, however they came
        missing = 1 - self.measure.exact(*(given.gather(1, worst) for given in (scores, labels, mask)))
        norms = torch.where(missing > RIGHT, missing, 0.0) ** self.balance * (missing > RIGHT)
        largest = gradient.abs().amax(dim=1, keepdim=True)
        some = largest * spread(scores, mask) > 4 * torch.finfo(gradient.dtype).eps
        gradient = torch.where(some, gradient / torch.where(some, largest, 1.0), 0.0)  # squares must not overflow
        return gradient * (norms[:, None] / gradient.norm(dim=1, keepdim=True).clamp(min=1))

    def arguments(self) -> dict[str, Any]:
        return super().arguments() | {"measure": name_of(self.measure)}

    def identity(self) -> dict[str, Any]:
        """Says what was once computed otherwise: smooth ranks at a cut-off (half a rank on), ties under ``balance``."""
        relaxation = self.relaxation
        smooth = isinstance(relaxation, SoftRanks) and not relaxation.exact_ranks and not relaxation.cutoff_shift
        at = smooth and self.measure.cutoff is not None
        ties = {} if self.balance is None else {"ties": "worst"}
        return super().identity() | ({"cutoff": "k"} if at else {}) | ties


def _taking(gain_of: GainOf, measure: Measure, relaxation: Relaxation) -> Relaxation:
    """A copy of the relaxation from which nDCG takes this gain; measures and families that know one gain keep it."""
    chosen = copy.copy(relaxation)
    if isinstance(measure, nDCG) and isinstance(chosen, RankIndicators) and gain_of in chosen.gains:
        chosen.gain_of = gain_of
    elif gain_of == "ranks":
        raise UserError(f"gain_of='ranks' needs nDCG from rank indicators, not {measure} from {relaxation!r}")
    return chosen
