"""Training configurations as nested mappings: dotted keys, merging, names for points of a search."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rerank.errors import UserError
from rerank.files import digest

Settings = dict[str, Any]


def assign(settings: Settings, key: str, value: Any) -> None:
    """Set a dotted key in place: ``loss.relaxation.alpha``.

    ``init_args`` may be left out below a class; a class given by its name alone becomes a mapping. What is missing on
    the way is made.

    Raises:
        UserError: a value on the way that holds no keys.
    """
    node = settings
    *way, last = key.split(".")
    for part in way:
        node = _inside(node, part)
        child = node.get(part)
        if child is None:
            child = {}
        elif isinstance(child, str):
            child = {"class_path": child}
        elif not isinstance(child, dict):
            raise UserError(f"{key}: {part} is {child!r}, which holds no keys")
        node[part] = child
        node = child
    _inside(node, last)[last] = copy.deepcopy(value)


def merged(base: Settings, over: Mapping[str, Any]) -> Settings:
    """A copy of ``base`` with other values: mappings key by key, but one with ``class_path`` as a whole."""
    result = copy.deepcopy(base)
    for key, value in _leaves(over):
        assign(result, key, value)
    return result


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


def _inside(node: Settings, part: str) -> Settings:
    """Where a key belongs: in ``init_args`` of a class."""
    if "class_path" in node and part not in ("class_path", "init_args"):
        if not isinstance(node.get("init_args"), dict):
            node["init_args"] = {}
        return node["init_args"]
    return node


def _leaves(over: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in over.items():
        if isinstance(value, Mapping) and value and "class_path" not in value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
