"""Train rerankers on the metric that you report."""

from __future__ import annotations

__version__ = "0.1.0"
