"""Measures of a ranked list, exact and relaxed: P, AP, nDCG, nERR, RR, R and Success, under ir-measures names."""

from __future__ import annotations

from typing import Any

from rerank.lazy import find

_HOMES = {
    **dict.fromkeys(("AP", "P", "R", "RR", "Success"), "binary"),
    **dict.fromkeys(("nDCG", "nERR"), "graded"),
    **{"Measure": "base", "parse": "names"},
}

__all__ = [*sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    return find(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
