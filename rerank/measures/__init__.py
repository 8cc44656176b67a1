"""Measures of a ranked list, exact and relaxed: P, AP, nDCG, nERR, RR, R and Success, under ir-measures names."""

from __future__ import annotations

from typing import Any

from rerank.lazy import find

_HOMES = {
    "AP": "binary",
    "Measure": "base",
    "P": "binary",
    "R": "binary",
    "RR": "binary",
    "Success": "binary",
    "nDCG": "graded",
    "nERR": "graded",
    "parse": "names",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    return find(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
