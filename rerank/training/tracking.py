"""Which trackers a run logs to, and what they receive of its configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import yaml


def trackers(asked: list[str] | None) -> list[str]:
    """Accelerate's trackers; where nothing was asked for, TensorBoard if it is installed."""
    if asked is not None:
        return asked
    return ["tensorboard"] if find_spec("tensorboard") else []


def settings(config: str) -> dict[str, Any]:
    """A configuration (YAML) as trackers show it: ``{"loss.init_args.measure": "nDCG@10", ...}``."""
    return dict(_leaves(yaml.safe_load(config), ""))


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value if isinstance(value, bool | int | float | str) else str(value)
