"""The direct-metric loss: a measure × a relaxation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rerank.losses.base import Loss, Reduction
from rerank.measures.names import parse
from rerank.relaxations.base import GainOf, Relaxation

if TYPE_CHECKING:
    from torch import Tensor


class DirectMetric(Loss):
    r"""One minus a measure, made differentiable by a relaxation.

    .. math:: \ell = 1 - \mathrm{measure}(E(s), y) \quad\text{or}\quad \ell = 1 - \mathrm{measure}(r(s), y)

    from rank indicators E or soft ranks r. The measure's name decides gain and relevance threshold, as in
    ir-measures: ``nDCG@10`` has the linear gain y, ``nDCG(dcg='exp-log2')@10`` has 2^y - 1, ``AP(rel=2)`` counts
    grades from 2. Shapes: scores and labels ``[B, N]``. A list without a relevant document is left out.

    Args:
        measure: an ir-measures name or object: P, AP, nDCG, nERR or RR, with or without a cut-off.
        relaxation: what stands in for sorting.
        gain_of: what nDCG takes the gain of when it is computed from rank indicators: "documents" (the expected
            gain) or "ranks" (the gain of the expected grade); None leaves it to the relaxation.
        reduction: mean or sum over the lists from which something can be learned, or none.
        validate: look at the values of scores and labels, and refuse what is not finite or negative.

    Raises:
        UserError: an unknown measure or parameter.
        ValueError: the relaxation is not defined for the measure.
    """

    def __init__(
        self,
        measure: str,
        relaxation: Relaxation,
        gain_of: GainOf | None = None,
        reduction: Reduction = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__(reduction, validate)
        self.measure = parse(measure)
        self.measure.check(relaxation, gain_of)
        self.relaxation = relaxation
        self.gain_of = gain_of

    def learnable(self, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """Lists with a relevant document."""
        relevant = self.measure.relevant(labels)
        return (relevant if mask is None else relevant & mask).sum(dim=1) > 0

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        """One minus the relaxed measure."""
        return 1 - self.measure.compute(self.relaxation, scores, labels, mask, seeds, self.gain_of)

    def __repr__(self) -> str:
        return f"DirectMetric({str(self.measure)!r}, {self.relaxation!r})"
