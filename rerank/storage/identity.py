"""What makes two trainings, or two measurements, the same: canonical JSON, its hash, and how two of them differ."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rerank.settings.described import Described, class_path, described
from rerank.storage.files import digest

SHOWN = 12
"""Characters of an id that names of files and folders end in."""

LARGEST_EXACT = 2.0**53
"""Whole floats below this are written as integers: 1 and 1.0 configure the same."""

ABSENT = "null"
"""What is not there, which counts as what is null."""


def canonical(value: Any) -> str:
    """A value of mappings, lists, strings and numbers as JSON, the same text for all that is equal."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def id_of(value: Any) -> str:
    """The SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def identify(value: Any) -> Any:
    """What of a configured value decides a result, made of mappings, lists, strings and numbers.

    An object becomes its class with its revisions and `Described.identity`. Our classes go by their short names, so
    that they may move; a user's class goes by its import path and the hash of the code of its module. What is None
    counts as absent, so that an option added later, and not used, leaves what was trained before as it was.
    """
    if isinstance(value, Described):
        return _class_of(type(value)) | _told(value.identity())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _told({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {str(key): identify(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [identify(inner) for inner in value]
    return described(value)


def _told(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: identify(inner) for name, inner in values.items() if inner is not None}


def first_difference(old: Any, new: Any, key: str = "") -> tuple[str, Any, Any] | None:
    """The first key, dotted, in which two identities differ, with its value in each; None where they are equal.

    >>> first_difference({"loss": {"alpha": 10}}, {"loss": {"alpha": 1}})
    ('loss.alpha', 10, 1)
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        inner = f"{key}." if key else ""
        if old.get("class") != new.get("class"):
            return f"{inner}class", old.get("class"), new.get("class")
        pairs = ((f"{inner}{name}", old.get(name, ABSENT), new.get(name, ABSENT)) for name in {**new, **old})
        return next(filter(None, (first_difference(one, other, name) for name, one, other in pairs)), None)
    return (key, old, new) if canonical(old) != canonical(new) else None


def is_ours(kind: type) -> bool:
    """Whether a class is this library's."""
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def _class_of(kind: type) -> dict[str, Any]:
    revisions = [vars(base)["revision"] for base in kind.__mro__ if "revision" in vars(base)]
    if is_ours(kind):
        return {"class": kind.__name__, "revision": revisions}
    return {"class": class_path(kind), "revision": revisions, "source": _source_hash(kind)}


def _source_hash(kind: type) -> str:
    """The hash of the module that defines a class; of its functions where there is no file, as in a notebook."""
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if path and path.endswith(".py"):
        return digest(Path(path))
    functions = [inspect.unwrap(value) for value in vars(kind).values() if inspect.isfunction(value)]
    try:
        source = "".join(map(inspect.getsource, functions))
    except (OSError, TypeError):
        source = "".join(function.__code__.co_code.hex() for function in functions)
    return hashlib.sha256(source.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Only what JSON has, and each number in one way."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return int(value) if value.is_integer() and abs(value) < LARGEST_EXACT else value
    return value
