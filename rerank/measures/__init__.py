"""Measures of a ranked list, exact and relaxed: P, AP, nDCG, nERR and RR, under ir-measures names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "AP": "ap",
    "Measure": "base",
    "P": "precision",
    "RR": "rr",
    "nDCG": "ndcg",
    "nERR": "nerr",
    "parse": "parsing",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
