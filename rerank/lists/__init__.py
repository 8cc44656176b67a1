"""Ragged ranked lists: queries with their candidates, built once, stored in Arrow, memory-mapped."""

from __future__ import annotations

from rerank.lists.build import build_lists
from rerank.lists.view import Lists

__all__ = ["Lists", "build_lists"]
