"""Choose among columns, their fusion and models on held-out queries: ``rerank auto``."""

from __future__ import annotations

from rerank.selection.auto import auto

__all__ = ["auto"]
