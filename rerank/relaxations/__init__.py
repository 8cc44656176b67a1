"""Relaxations of sorting, which make ranking measures differentiable.

:class:`RankIndicators` give each rank a distribution over documents, :class:`SoftRanks` give each document a real rank.
Names are imported at their first use, so that ``import rerank.relaxations`` does not import torch.
"""

from __future__ import annotations

import lazy_loader

_RELAXATIONS = {
    "sigmoids": ["Approx", "TwinSigmoid"],
    "fastsoftsort": ["FastSoftSort"],
    "neuralsort": ["NeuralSort"],
    "transport": ["OptimalTransport"],
    "smoothi": ["SmoothI"],
    "softsort": ["SoftSort"],
}
RELAXATIONS = [name for names in _RELAXATIONS.values() for name in names]
_BASES = {"base": ["Batch", "Exact", "RankIndicators", "Relaxation", "SoftRanks"]}

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_RELAXATIONS | _BASES)
