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
    if relaxation.exact_ranks:
        return (batch.at_rows(batch.exact) <= cutoff).to(ranks.dtype)
    return torch.sigmoid(relaxation.beta * (cutoff + 0.5 - ranks))


def behind(beta: float, ranks: Tensor) -> Tensor:
    """Logits of "document i is behind document j", ``beta (r_i - r_j)``: ``[B, R, R]``."""
    return beta * (ranks[:, :, None] - ranks[:, None, :])
