"""Measures of a ranked list, exact and relaxed: P, AP, nDCG, nERR and RR, under the names of ir-measures."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={"binary": ["AP", "P", "RR"], "graded": ["nDCG", "nERR"], "base": ["Measure"], "names": ["parse"]},
)
