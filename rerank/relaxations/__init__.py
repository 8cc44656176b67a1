"""Relaxations: what makes a ranking differentiable, one file each.

``RankIndicators`` say how much of each document sits at each rank, ``SoftRanks`` give each document a real rank.
Names are imported at their first use, so that ``import rerank.relaxations`` does not import torch.
"""

from __future__ import annotations

from typing import Any

from rerank.lazy import find

_HOMES = {
    **dict.fromkeys(("Batch", "Exact", "RankIndicators", "Relaxation", "SoftRanks"), "base"),
    **dict.fromkeys(("Approx", "TwinSigmoid"), "sigmoids"),
    **{"FastSoftSort": "fastsoftsort", "NeuralSort": "neuralsort", "OptimalTransport": "transport"},
    **{"Fidelity": "fidelity", "SmoothI": "smoothi", "SoftSort": "softsort"},
}

__all__ = ["load_all", *sorted(_HOMES)]


def load_all() -> dict[str, type]:
    """Import every relaxation to train with: its class by name, so that configs may call it by its short name.

    >>> "SmoothI" in load_all()
    True
    """
    from rerank.relaxations.base import RankIndicators, Relaxation, SoftRanks

    classes = {name: __getattr__(name) for name in sorted(_HOMES)}
    others = (Relaxation, RankIndicators, SoftRanks, classes["Exact"])  # families, and what has no gradient
    return {name: kind for name, kind in classes.items() if issubclass(kind, Relaxation) and kind not in others}


def __getattr__(name: str) -> Any:
    return find(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
