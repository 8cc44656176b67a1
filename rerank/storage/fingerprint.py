"""Fingerprints: one hash of everything that decides a result, and the first setting in which two results differ."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import sys
from collections.abc import Mapping
from typing import Any

from rerank.settings.described import Described, class_path, described

LARGEST_EXACT = 2.0**53
"""Whole floats below this are written as integers, so that 1 and 1.0 configure the same."""


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of settings as canonical JSON, in hex.

    >>> fingerprint({"epochs": 1, "lr": 1.0}) == fingerprint({"lr": 1, "epochs": 1})
    True
    """
    text = json.dumps(resolve(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def resolve(value: Any) -> Any:
    """Write settings as mappings, lists, strings and numbers, with every default.

    An object becomes its class with its arguments. A user's class counts with the source of its module, or with its own
    source in a script.
    """
    if isinstance(value, Described):
        return _class_of(type(value)) | resolve(value.arguments())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: resolve(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): resolve(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [resolve(inner) for inner in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < LARGEST_EXACT else value
    return described(value)


def first_difference(old: Any, new: Any, key: str = "") -> tuple[str, Any, Any] | None:
    """Find the first key, dotted, in which resolved settings differ, and its two values; None if they are equal.

    >>> first_difference({"loss": {"alpha": 10}}, {"loss": {"alpha": 1}})
    ('loss.alpha', 10, 1)
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        if old.get("class") != new.get("class"):
            return key, old.get("class"), new.get("class")
        inner = f"{key}." if key else ""
        pairs = ((f"{inner}{name}", old.get(name), new.get(name)) for name in {**new, **old})
        return next(filter(None, (first_difference(one, other, name) for name, one, other in pairs)), None)
    return (key, old, new) if fingerprint(old) != fingerprint(new) else None


def is_ours(kind: type) -> bool:
    """Return True for a class of this library."""
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def _class_of(kind: type) -> dict[str, Any]:
    if is_ours(kind):
        return {"class": kind.__name__}
    try:
        source = inspect.getsource(kind if kind.__module__ == "__main__" else sys.modules[kind.__module__])
    except (OSError, TypeError):  # typed into an interpreter
        functions = [inspect.unwrap(value) for value in vars(kind).values() if inspect.isfunction(value)]
        source = "".join(function.__code__.co_code.hex() for function in functions)
    return {"class": class_path(kind), "source": hashlib.sha256(source.encode()).hexdigest()}
