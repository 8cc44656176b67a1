"""Where there are two implementations, ours and PyTorch's: the one that each module of a network takes.

Attention and dropout have both. :meth:`rerank.models.text.part.TextPart.implementations` chooses by the
processor and the type, so one processor always computes the same bits.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from torch import nn

Implementation = Literal["own", "torch"]

Kernels = Literal["auto", "own", "torch"]
"""What can be asked for: whatever is faster here, ours, or PyTorch's."""


SHOWN = {"scoring": "attention in scoring", "training": "attention in training", "dropped": "attention with dropout"}
"""What the log calls kinds of work whose names alone do not say it."""


@dataclass(frozen=True)
class Implementations:
    """Kernels chosen for each kind of work: attention as :data:`SHOWN` says, and dropout of hidden states."""

    scoring: Implementation
    training: Implementation
    dropped: Implementation
    dropout: Implementation

    @classmethod
    def all(cls, way: Implementation) -> Implementations:
        return cls(way, way, way, way)

    def __str__(self) -> str:
        work = {"own": list[str](), "torch": list[str]()}
        for name, way in asdict(self).items():
            work[way].append(SHOWN.get(name, name))
        by = {"own": "rerank's for", "torch": "PyTorch's for"}
        return "; ".join(f"{by[way]} {', '.join(kinds)}" for way, kinds in work.items() if kinds)


def use_implementations(network: nn.Module, chosen: Implementations | None) -> None:
    """Let every module of a network take these; None for what is known to be faster on most processors."""
    for module in network.modules():
        module.__dict__["rerank_implementations"] = chosen  # the module's own, so that a copy of a network has it, too


def implementations_of(module: nn.Module) -> Implementations | None:
    """What a module takes; None where nothing was chosen."""
    chosen: Implementations | None = module.__dict__.get("rerank_implementations")
    return chosen


def implementation_of(module: nn.Module, drops: bool) -> Implementation | None:
    """What a module's attention takes, in its mode; None where nothing was chosen."""
    if (chosen := implementations_of(module)) is None:
        return None
    return chosen.dropped if drops else chosen.training if module.training else chosen.scoring
