"""All losses and relaxations of the library."""

from __future__ import annotations

from typing import Any

from rerank import losses, relaxations

LOSSES: dict[str, Any] = {name: getattr(losses, name) for name in losses.LOSSES}
RELAXATIONS: dict[str, Any] = {name: getattr(relaxations, name) for name in relaxations.RELAXATIONS}
