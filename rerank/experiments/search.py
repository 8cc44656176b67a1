"""The points of a search, and what they are called in the names of folders."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

from rerank.storage.files import digest

Point = dict[str, Any]
"""Values by dotted key: what one training of a search tries."""


def grid(space: Mapping[str, Any]) -> list[Point]:
    """Every combination of the values; without a key it is one point.

    >>> grid({"loss.alpha": [1, 3], "epochs": [2]})
    [{'loss.alpha': 1, 'epochs': 2}, {'loss.alpha': 3, 'epochs': 2}]
    """
    return [dict(zip(space, combination, strict=True)) for combination in itertools.product(*space.values())]


def point_name(point: Mapping[str, Any]) -> str:
    """A folder's name for a point of a search: the last words of the keys with their values.

    The name of a point without keys is ``point``. Names of different points differ: what a name cannot show (a class
    with arguments, signs that no file name should have) is told apart by a digest.
    """
    if not point:
        return "point"
    whole = json.dumps(point, sort_keys=True)
    last = [key.rpartition(".")[2] for key in point]
    keys = last if len(set(last)) == len(last) else list(point)
    text = ",".join(f"{key}={shown(value)}" for key, value in zip(keys, point.values(), strict=True))
    plain = all(isinstance(value, int | float | bool | None) for value in point.values())
    safe = file_name(text)
    return safe if plain and safe == text and len(safe) <= 100 else f"{safe[:80]}-{digest(whole)[:8]}"


def file_name(text: str) -> str:
    """The text with signs replaced that make trouble in file names."""
    return re.sub(r"[^\w.,=@+-]+", "_", text)


def shown(value: Any) -> str:
    """A value in a word: a class by its name."""
    return str(value.get("class_path", "set")) if isinstance(value, dict) else str(value)
