"""Equality of what float32 computes: to a share of the largest number, since small ones are sums of large ones."""

from __future__ import annotations

from torch import Tensor, nn

SHARE = 1e-5
"""How far a number may be off, as a share of the largest of its tensor."""

FAINT = 0.1
"""Gradients smaller than this share of the model's largest one are held to what they would be off by at that size."""


def check_close(found: Tensor, expected: Tensor, what: str = "", least: float = 0.0) -> None:
    """Fail where a number is off by more than :data:`SHARE` of the largest one, or of ``least`` where that is more."""
    assert found.shape == expected.shape, what
    off, most = float((found.double() - expected.double()).detach().abs().max()), float(expected.detach().abs().max())
    assert off <= SHARE * max(most, least), f"{what} off by {off:.3g}, where the largest is {most:.3g}"


def gradients_of(network: nn.Module) -> dict[str, Tensor]:
    """The gradient of every parameter that has one."""
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


def check_gradients(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Fail where a gradient is missing, or off."""
    assert found.keys() == expected.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        check_close(found[name], gradient, name, FAINT * largest)
