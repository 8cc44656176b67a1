"""Relaxations: what makes a ranking differentiable, one file each.

``RankIndicators`` say how much of each document sits at each rank, ``SoftRanks`` give each document a real rank.
"""

from __future__ import annotations

from typing import Any

_HOME = {
    "Approx": "approx",
    "Exact": "exact",
    "FastSoftSort": "fastsoftsort",
    "Fidelity": "fidelity",
    "Lists": "base",
    "NeuralSort": "neuralsort",
    "OptimalTransport": "transport",
    "RankIndicators": "base",
    "Relaxation": "base",
    "SmoothI": "smoothi",
    "SoftRanks": "base",
    "SoftSort": "softsort",
    "TwinSigmoid": "twinsigmoid",
}
__all__ = list(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_HOME)
