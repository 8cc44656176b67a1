"""Relaxations of sorting, which make ranking measures differentiable.

:class:`RankIndicators` give each rank a distribution over documents, :class:`SoftRanks` give each document a real rank.
Names are imported at their first use, so that ``import rerank.relaxations`` does not import torch.
"""

from __future__ import annotations

from rerank.lazy import lazy

_HOMES = {
    **dict.fromkeys(("Batch", "Exact", "RankIndicators", "Relaxation", "SoftRanks"), "base"),
    **dict.fromkeys(("Approx", "TwinSigmoid"), "sigmoids"),
    **{"FastSoftSort": "fastsoftsort", "NeuralSort": "neuralsort", "OptimalTransport": "transport"},
    **{"SmoothI": "smoothi", "SoftSort": "softsort"},
}

__all__ = ["load_all", *sorted(_HOMES)]
__getattr__, __dir__ = lazy(__name__, _HOMES)


def load_all() -> dict[str, type]:
    """Import every relaxation to train with: classes by name, so that configurations may use short names.

    >>> "SmoothI" in load_all()
    True
    """
    others = ("Batch", "Exact", "RankIndicators", "Relaxation", "SoftRanks")
    return {name: __getattr__(name) for name in sorted(_HOMES) if name not in others}
