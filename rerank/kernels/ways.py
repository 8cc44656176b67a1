"""Where two ways lead to the same numbers: which of them a network's modules take.

Attention, dropout and products have a way of our own and PyTorch's. Which one is faster goes by the processor and the
type (:func:`rerank.models.text.kernels.faster_ways`), so one processor always computes the same bits.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from torch import nn

Way = Literal["own", "torch"]

Kernels = Literal["auto", "own", "torch"]
"""What can be asked for: whatever is faster here, ours, or PyTorch's."""


SHOWN = {"scoring": "attention in scoring", "training": "attention in training", "dropped": "attention with dropout"}
"""What the log calls kinds of work whose names alone do not say it."""


@dataclass(frozen=True)
class Ways:
    """What is taken for each kind of work.

    Attributes:
        scoring: attention in evaluation mode.
        training: attention in training mode, backwards too, without dropout.
        dropped: the same with dropout.
        dropout: dropout of states.
        products: products of scoring, of weights and states.
    """

    scoring: Way
    training: Way
    dropped: Way
    dropout: Way
    products: Way

    @classmethod
    def all(cls, way: Way) -> Ways:
        return cls(way, way, way, way, way)

    def __str__(self) -> str:
        work = {"own": list[str](), "torch": list[str]()}
        for name, way in asdict(self).items():
            work[way].append(SHOWN.get(name, name))
        by = {"own": "rerank's for", "torch": "PyTorch's for"}
        return "; ".join(f"{by[way]} {', '.join(kinds)}" for way, kinds in work.items() if kinds)


def use_ways(network: nn.Module, ways: Ways | None) -> None:
    """Let every module of a network take these ways; None for what is known to be faster on most processors."""
    for module in network.modules():
        module.__dict__["rerank_ways"] = ways  # the module's own, so that a copy of a network has it, too


def ways_of(module: nn.Module) -> Ways | None:
    """Which way a module takes."""
    ways: Ways | None = module.__dict__.get("rerank_ways")
    return ways


def way_of(module: nn.Module, drops: bool) -> Way | None:
    """The way of a module's attention, in its mode; None where nothing was chosen.

    Args:
        module: the attention.
        drops: whether weights are dropped.
    """
    if (ways := ways_of(module)) is None:
        return None
    return ways.dropped if drops else ways.training if module.training else ways.scoring
