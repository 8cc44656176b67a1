"""Comparisons of soft ranks: with a cut-off, and with one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from rerank.relaxations.base import Batch, SoftRanks


def inside(relaxation: SoftRanks, batch: Batch, ranks: Tensor, cutoff: int | None) -> Tensor | float:
    """How far documents are within the cut-off, ``[B, R]``.

    ``sigmoid(beta (k + 1/2 - r))`` for smooth ranks; 0 or 1 by the exact rank for relaxations whose ranks have exact
    values; 1 without a cut-off.
    """
    import torch

    if cutoff is None:
        return 1.0
    steepness = relaxation.steepness(batch)
    if steepness is not None:
        soft = torch.sigmoid(steepness * (batch.at_rows(batch.scores) - _threshold(batch, cutoff)))
        if not relaxation.exact_ranks:
            return soft
    if relaxation.exact_ranks:
        hard = (batch.at_rows(batch.exact) <= cutoff).to(ranks.dtype)
        return hard if steepness is None else hard + (soft - soft.detach())
    return torch.sigmoid(relaxation.beta * (cutoff + 0.5 - ranks))


def _threshold(batch: Batch, cutoff: int) -> Tensor:
    """Midway between the scores at the last place within the cut-off and the next, ``[B, 1]``."""
    import torch

    best = batch.rivals.topk(min(cutoff + 1, batch.rivals.shape[1]), dim=1).values
    if best.shape[1] <= cutoff:
        best = torch.nn.functional.pad(best, (0, cutoff + 1 - best.shape[1]), value=-torch.inf)
    return best[:, cutoff - 1 : cutoff + 1].mean(dim=1, keepdim=True)


def behind(relaxation: SoftRanks, batch: Batch, ranks: Tensor) -> Tensor:
    """Logits of "document i is behind document j", ``beta (r_i - r_j)``: ``[B, R, R]``."""
    steepness = relaxation.steepness(batch)
    if steepness is not None:
        scores = batch.at_rows(batch.scores)
        return steepness[:, :, None] * (scores[:, None, :] - scores[:, :, None])
    return relaxation.beta * (ranks[:, :, None] - ranks[:, None, :])
