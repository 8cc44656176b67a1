"""Train rerankers on the metric that you report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rerank.models.text.cross_encoder import CrossEncoder

__version__ = "0.1.0"
__all__ = ["CrossEncoder"]


def __getattr__(name: str) -> Any:
    """Import the model at its first use, so that ``import rerank`` does not import torch."""
    if name == "CrossEncoder":
        from rerank.models.text.cross_encoder import CrossEncoder

        return CrossEncoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
