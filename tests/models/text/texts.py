"""Pairs of texts, short and long ones."""

from __future__ import annotations

PAIRS = [
    ("shock wave", "the shock wave on a blunt body"),
    ("heat", "a"),
    ("boundary layer flow", "heat transfer in the laminar boundary layer of a flat plate at high speed"),
    ("jet", ""),
]
