"""Models over feature vectors: networks and gradient-boosted trees."""

from __future__ import annotations
