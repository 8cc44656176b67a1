"""Scores of runs: measures, significance, comparison, interpolation with the first stage."""

from __future__ import annotations
