"""Measures of a ranked list, exact and relaxed: P, AP, nDCG, nERR and RR, under the names of ir-measures."""

from __future__ import annotations

from rerank.lazy import lazy

_HOMES = {
    **dict.fromkeys(("AP", "P", "RR"), "binary"),
    **dict.fromkeys(("nDCG", "nERR"), "graded"),
    **{"Measure": "base", "parse": "names"},
}

__all__ = [*sorted(_HOMES)]
__getattr__, __dir__ = lazy(__name__, _HOMES)
