"""What is computed faster than its library does it, each held to the plain way by a test."""

from __future__ import annotations
