"""Comparisons with a cut-off, and of documents with one another, for measures from soft ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rerank.relaxations.base import Batch, SoftRanks

if TYPE_CHECKING:
    from torch import Tensor


def inside(relaxation: SoftRanks, batch: Batch, ranks: Tensor, cutoff: int | None) -> Tensor | float:
    """How far documents are within the cut-off, ``[B, R]``.

    ``sigmoid(beta (k + shift - r))`` for smooth ranks, with ``cutoff_shift``; 0 or 1 by the exact rank for relaxations
    whose ranks have exact values; 1 without a cut-off.

    Where the relaxation has a steepness for scores, ``sigmoid(steepness (s - c))`` with c midway between the k-th score
    and the next: soft ranks of scores that are close together all lie near the middle of the list, far beyond a cut-off
    of a few ranks, and a sigmoid over ranks has no slope there. Exact ranks take its gradient and keep their value.
    """
    if cutoff is None:
        return 1.0
    steepness = relaxation.score_steepness(batch)
    if steepness is not None:
        soft = (steepness * (batch.at_rows(batch.scores) - _threshold(batch, cutoff, steepness))).sigmoid()
        if not relaxation.exact_ranks:
            return soft
    if relaxation.exact_ranks:
        hard = (batch.at_rows(batch.exact) <= cutoff).to(ranks.dtype)
        return hard if steepness is None else hard + (soft - soft.detach())
    return (relaxation.beta * (cutoff + relaxation.cutoff_shift - ranks)).sigmoid()


def _threshold(batch: Batch, cutoff: int, steepness: Tensor) -> Tensor:
    """Midway between the scores at the last place within the cut-off and the next, ``[B, 1]``.

    Two documents are a noisy place to push against, and none at all would let a list lift all of its scores. So the
    gradient is that of the threshold c of a soft selection, ``sum_j sigmoid(steepness (s_j - c)) = constant``: what
    comes in pushes out those near the cut-off.
    """
    import torch

    best = batch.rivals.topk(min(cutoff + 1, batch.rivals.shape[1]), dim=1).values
    if best.shape[1] <= cutoff:
        best = torch.nn.functional.pad(best, (0, cutoff + 1 - best.shape[1]), value=-torch.inf)
    middle = best[:, cutoff - 1 : cutoff + 1].mean(dim=1, keepdim=True)
    chance = torch.sigmoid(steepness * (batch.scores.detach() - middle))
    near = chance * (1 - chance) * batch.mask
    shares = near / near.sum(dim=1, keepdim=True).clamp(min=torch.finfo(near.dtype).tiny)
    return middle + ((batch.scores - batch.scores.detach()) * shares).sum(dim=1, keepdim=True)


def behind(relaxation: SoftRanks, batch: Batch, ranks: Tensor) -> Tensor:
    """Logits of "document i is behind document j", by ranks or by scores: ``[B, R, R]``."""
    steepness = relaxation.score_steepness(batch)
    if steepness is not None:
        scores = batch.at_rows(batch.scores)
        return steepness[:, :, None] * (scores[:, None, :] - scores[:, :, None])
    return relaxation.beta * (ranks[:, :, None] - ranks[:, None, :])
