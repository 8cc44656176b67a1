"""An experiment's pictures."""

from __future__ import annotations
