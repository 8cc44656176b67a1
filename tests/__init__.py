"""Tests; packages, so that no other package named `tests` can come before them."""

from __future__ import annotations
