"""How far apart the scores of a list are, and a steepness that suits them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Spread = Literal["spread"]
"""In place of a steepness, a temperature or a strength: from the spread of every list's scores, which is ours."""

FLOOR = 1e-3
"""The least spread that is reckoned with: scores closer together than this count as nearly tied."""

STEEPNESS = 3.0
"""Steepness of sigmoids over scores, times the spread of a list's scores while that is below 1."""


def steepness(spread: Tensor) -> Tensor:
    """``3 / min(1, spread)``: steep enough for a fresh model's scores, which are close together.

    It does not fall once scores have spread out to 1, so that a model can make its ranking sharper by spreading them
    further, and what is computed tends to the exact measure.
    """
    return STEEPNESS / spread.clamp(max=1)


def spread(scores: Tensor, mask: Tensor) -> Tensor:
    """The standard deviation of every list's scores, without gradient and at least :data:`FLOOR`, ``[B, 1]``."""
    found = scores.detach()
    count = mask.sum(dim=1, keepdim=True).clamp(min=1)
    centred = found - found.masked_fill(~mask, 0.0).sum(dim=1, keepdim=True) / count
    variance = centred.masked_fill(~mask, 0.0).square().sum(dim=1, keepdim=True) / count
    return variance.sqrt().clamp(min=FLOOR)
