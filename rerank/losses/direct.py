"""The direct-metric loss: a measure × a relaxation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerank.losses.base import Loss, Reduction
from rerank.measures.names import name_of, parse
from rerank.relaxations.base import Relaxation

if TYPE_CHECKING:
    from torch import Tensor


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
        measure: an ir-measures name or object: P, AP, nDCG, nERR or RR, with or without a cut-off.
        relaxation: the differentiable replacement of sorting.
        reduction: mean or sum over the lists from which something can be learned, or none.

    Raises:
        UserError: an unknown measure or parameter.
        ValueError: the relaxation is not defined for the measure.
    """

    def __init__(self, measure: str, relaxation: Relaxation, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.measure, self.relaxation = parse(measure), relaxation
        self.measure.check(relaxation)

    def learnable(self, labels: Tensor, mask: Tensor) -> Tensor:
        return (self.measure.relevant(labels) & mask).any(dim=1)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        return 1 - self.measure.compute(self.relaxation, scores, labels, mask, seeds)

    def arguments(self) -> dict[str, Any]:
        return super().arguments() | {"measure": name_of(self.measure)}
