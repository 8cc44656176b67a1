"""Compare float32 results relative to the largest number, because small ones are sums of large ones."""

from __future__ import annotations

from torch import Tensor, nn

SHARE = 1e-5
"""Largest error, as a share of the largest number."""


def check_close(found: Tensor, expected: Tensor, what: str = "", least: float = 0.0) -> None:
    """Fail if a number is off by more than :data:`SHARE` of the largest one, or of ``least`` if that is larger."""
    assert found.shape == expected.shape, what
    off, most = float((found.double() - expected.double()).detach().abs().max()), float(expected.detach().abs().max())
    assert off <= SHARE * max(most, least), f"{what} off by {off:.3g}, where the largest is {max(most, least):.3g}"


def gradients_of(network: nn.Module) -> dict[str, Tensor]:
    """Copy the gradient of every parameter that has one."""
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


def check_gradients(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Fail if a parameter's gradient is missing, or off by more than a share of the whole gradient's largest number.

    A layer norm of nearly equal numbers has a gradient that float32 cannot hold to a share of its own, whoever
    computes it.
    """
    assert found.keys() == expected.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        check_close(found[name], gradient, name, largest)
