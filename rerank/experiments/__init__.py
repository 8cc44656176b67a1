"""Whole experiments: the demo."""

from __future__ import annotations
