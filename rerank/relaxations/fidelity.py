"""How close a relaxation is to sorting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rerank.relaxations.base import Batch, RankIndicators, Relaxation, SoftRanks
from rerank.relaxations.order import first, order_of, ranks_of

if TYPE_CHECKING:
    from rerank.measures.base import Measure


@dataclass
class Fidelity:
    """What a user needs to choose a relaxation and its temperature; each ``[B]``, one number per list.

    >>> from rerank.relaxations import SoftSort
    >>> found = fidelity(SoftSort(), torch.tensor([[0.0, 0.0]]))  # tied: each document is half at both ranks
    >>> found.rank_error, found.sharpness  # |1.5 - 1| + |1.5 - 2|
    (tensor([1.]), tensor([0.5000]))

    Attributes:
        rank_error: L1 distance of soft from exact ranks, summed over the list. For indicators the soft rank of a
            document is the mean rank under its column, ``sum_r r E[r, j] / sum_r E[r, j]``.
        sharpness: mean over ranks of the largest indicator, 1 where every rank has one document; None for soft ranks.
        hits: share of ranks whose largest indicator is that of the document that is there; None for soft ranks.
        gap: relaxed less exact measure; None without a measure.
    """

    rank_error: Tensor
    sharpness: Tensor | None = None
    hits: Tensor | None = None
    gap: Tensor | None = None


@torch.no_grad()
def fidelity(
    relaxation: Relaxation,
    scores: Tensor,
    mask: Tensor | None = None,
    labels: Tensor | None = None,
    measure: Measure | None = None,
) -> Fidelity:
    """How close a relaxation is to sorting on some lists; no gradient, see :class:`Fidelity`.

    Args:
        relaxation: what stands in for sorting.
        scores: ``[B, N]`` floating point.
        mask: ``[B, N]`` bool, True for real documents; None when all are real.
        labels: ``[B, N]`` grades; needed for the gap, and by relaxations whose ranks look at labels.
        measure: whose relaxed value is compared with its exact value.
    """
    if measure is not None and labels is None:
        raise ValueError("labels are needed for the gap to a measure")
    if mask is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(~mask, 0.0)
    labels = torch.zeros_like(scores) if labels is None else labels.to(scores.dtype).masked_fill(~mask, 0.0)
    seeds = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)  # the same whenever it is measured
    order = order_of(scores, mask)
    exact = ranks_of(order).to(scores.dtype)
    sharpness = hits = None
    if isinstance(relaxation, RankIndicators):
        size, count = scores.shape[1], mask.sum(dim=1).clamp(min=1)
        rows = relaxation.indicators(scores, mask, size) * first(mask)[:, :, None] * mask[:, None, :]
        ranks = torch.arange(1, size + 1, dtype=scores.dtype, device=scores.device)
        soft = (ranks @ rows) / rows.sum(dim=1).clamp(min=torch.finfo(scores.dtype).tiny)
        largest = rows.max(dim=2)
        sharpness = largest.values.sum(dim=1) / count
        hits = ((largest.indices == order) & first(mask)).sum(dim=1) / count
    elif isinstance(relaxation, SoftRanks):
        every = torch.arange(scores.shape[1], device=scores.device).expand(scores.shape)
        batch = Batch(scores, labels, mask, every, seeds)
        soft, exact = relaxation.ranks(batch), batch.exact  # of equal scores, the same first
    else:
        raise ValueError(f"{type(relaxation).__name__} must derive from RankIndicators or SoftRanks")
    error = ((soft - exact).abs() * mask).sum(dim=1)
    gap = None
    if measure is not None:
        gap = measure.relaxed(relaxation, scores, labels, mask, seeds) - measure.exact(scores, labels, mask)
    return Fidelity(error, sharpness, hits, gap)
