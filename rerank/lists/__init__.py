"""Ragged ranked lists: queries with their candidates, built once, stored in Arrow, memory-mapped."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs={"build": ["build_lists"], "view": ["Lists"]})
