"""Equality of what float32 computes: to a share of the largest number, since small ones are sums of large ones."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

SHARE = 1e-5
"""How far a number may be off, as a share of the largest of its tensor."""


def check_close(found: Tensor, expected: Tensor, what: str = "", share: float = SHARE, least: float = 0.0) -> None:
    """Fail where a number is off by more than a share of the largest one, or of ``least`` where that is more."""
    assert found.shape == expected.shape, what
    off, most = float((found.double() - expected.double()).detach().abs().max()), float(expected.detach().abs().max())
    assert off <= share * max(most, least), f"{what}: off by {off:.3g}, where the largest is {most:.3g}"
