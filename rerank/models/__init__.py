"""Models that score query-document pairs."""

from __future__ import annotations
