"""Fingerprints: one hash of everything that decides a result, and the first setting in which two results differ."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Mapping
from typing import Any

from rerank.settings.described import class_path, described


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of settings as canonical JSON, in hex.

    >>> fingerprint({"epochs": 1, "lr": 1.0}) == fingerprint({"lr": 1, "epochs": 1})
    True
    """
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value: Any) -> Any:
    """Write settings as mappings, lists, strings and numbers, with every default; 1.0 and 1 are the same.

    An object becomes its class with its arguments. A user's class counts with the source of its module, or with its own
    source in a script.
    """
    plain = described(value, lambda inner: _class_of(type(inner)) | canonical(inner.arguments()))
    return json.loads(json.dumps(plain), parse_float=_shortest)


def _shortest(digits: str) -> float:
    value = float(digits)
    return int(value) if value.is_integer() else value


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
