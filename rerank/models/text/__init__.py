"""Models that read texts: cross-encoders."""

from __future__ import annotations
