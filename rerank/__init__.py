"""Train rerankers on the metric that you report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerank.lazy import find

if TYPE_CHECKING:
    from rerank.lists.view import Lists
    from rerank.models.text.adapter import LoRA
    from rerank.models.text.cross_encoder import CrossEncoder
    from rerank.models.text.decoder import Decoder

__version__ = "0.1.0"
__all__ = ["CrossEncoder", "Decoder", "Lists", "LoRA"]

_HOMES = {
    "CrossEncoder": "models.text.cross_encoder",
    "Decoder": "models.text.decoder",
    "Lists": "lists.view",
    "LoRA": "models.text.adapter",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use, so that ``import rerank`` does not import torch."""
    return find(__name__, _HOMES, name)
