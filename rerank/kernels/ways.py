"""Where two ways lead to the same numbers: which of them a network's modules take.

Attention, dropout and products have a way of our own and PyTorch's. :mod:`rerank.kernels.measured` finds the faster
one; a training keeps what it started with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from torch import nn

Way = Literal["own", "torch"]

Kernels = Literal["auto", "own", "torch"]
"""What can be asked for: whatever is faster here, ours, or PyTorch's."""


@dataclass(frozen=True)
class Ways:
    """What is taken for each kind of work.

    Attributes:
        scoring: attention in evaluation mode.
        training: attention in training mode, backwards too, without dropout.
        dropped: the same with dropout.
        dropout: dropout of states.
        products: products of scoring, of weights and states. (Runs of earlier versions do not say.)
    """

    scoring: Way
    training: Way
    dropped: Way
    dropout: Way
    products: Way = "torch"

    @classmethod
    def all(cls, way: Way) -> Ways:
        """The same for everything."""
        return cls(way, way, way, way, way)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Ways:
        """What :func:`dataclasses.asdict` made; raises ValueError where it did not make it."""
        found = {field.name: told.get(field.name, field.default) for field in fields(cls)}
        if any(way not in ("own", "torch") for way in found.values()):
            raise ValueError(f"not ways: {dict(told)}")
        return cls(**found)

    def __str__(self) -> str:
        """A word for each kind."""
        return ", ".join(f"{name} {way}" for name, way in asdict(self).items())


def use_ways(network: nn.Module, ways: Ways | None) -> None:
    """Let every module of a network take these ways; None for what is known to be faster on most processors."""
    for module in network.modules():
        module.__dict__["rerank_ways"] = ways  # the module's own, so that a copy of a network has it, too


def ways_of(module: nn.Module) -> Ways | None:
    """Which way a module takes."""
    found: Ways | None = module.__dict__.get("rerank_ways")
    return found


def way_of(module: nn.Module, drops: bool) -> Way | None:
    """The way of a module's attention, in its mode; None where nothing was chosen.

    Args:
        module: the attention.
        drops: whether weights are dropped.
    """
    if (ways := ways_of(module)) is None:
        return None
    return ways.dropped if drops else ways.training if module.training else ways.scoring
