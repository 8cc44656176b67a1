"""Collect the docstrings of the standard library: the documents of the demo collection.

A document is a public class, function, method or property with a docstring of its own. Its id is the dotted name under
which a user finds it, its text that name with the signature, an empty line, and the docstring (a class's is followed by
its constructor's).

This file imports nothing but the standard library and runs as a script in an interpreter of its own
(``python -I -S -B documents.py``): importing three hundred modules has no effect on the calling process, and what other
packages have patched there has no effect on the documents.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import os
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

# Open windows, print, touch the terminal or hold no API; those after the empty line are gone from Python 3.12, 3.13 or
# 3.14, and to name them would be a bad answer.
# fmt: off
LEFT_OUT = frozenset([
    "__phello__", "antigravity", "encodings", "ensurepip", "idlelib", "pip", "pydoc_data", "readline", "rlcompleter",
    "test", "this", "tkinter", "turtle", "turtledemo",

    "aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "distutils", "imghdr", "imp",
    "lib2to3", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "smtpd", "sndhdr", "spwd", "sunau",
    "telnetlib", "uu", "xdrlib",
])
# fmt: on
# Where os and os.path are implemented: nobody imports these.
IMPLEMENTATION = frozenset(["genericpath", "nt", "ntpath", "nturl2path", "posix", "posixpath"])
PROPERTIES = (property, functools.cached_property)


class Name(NamedTuple):
    """A public name of an object: the module or class that holds it, its attribute there."""

    holder: str
    attribute: str

    @property
    def dotted(self) -> str:
        """The name in full; what is built in goes by its plain name."""
        return self.attribute if self.holder == "builtins" else f"{self.holder}.{self.attribute}"


def collect() -> list[tuple[str, str]]:
    """Collect ``(id, text)`` of every document from this interpreter, sorted by id.

    Objects with several public names appear once, under their own: see :func:`home`. Members are documented at the
    class that defines them, those of a private class at its nearest public subclass. Names with a leading underscore
    (so the operators, too) are left out, and docstrings that a class or method shares with its base class, or a method
    with the function of its name (``random.Random.choice``, ``unicodedata.UCD.name``).
    """
    names: dict[int, list[tuple[Name, Any, bool]]] = {}
    for module_name, module in public_modules():
        listed = getattr(module, "__all__", None)
        for attribute in sorted(set(vars(module) if listed is None else listed)):
            value = getattr(module, attribute, None)
            if attribute.startswith("_") or not (inspect.isclass(value) or inspect.isroutine(value)):
                continue
            if listed is not None or belongs(value, module_name):
                entry = (Name(module_name, attribute), value, listed is not None)
                names.setdefault(id(underlying(value)), []).append(entry)
    found = {name.dotted: value for name, value in map(home, names.values())}
    classes = {value: name for name, value in found.items() if inspect.isclass(value)}
    documents = dict(described(name, value) for name, value in found.items())
    for name, value in members(classes):
        scope, _, last = name.rpartition(".")
        twin = found.get(f"{scope.rpartition('.')[0]}.{last}")
        if id(underlying(value)) not in names and docstring(value) != docstring(twin):
            documents.update([described(name, value)])
    return sorted((name, text) for name, text in documents.items() if text)


def public_modules() -> Iterator[tuple[str, ModuleType]]:
    """Import the public modules of the standard library; those that this platform lacks are left out."""
    queue = sorted(sys.stdlib_module_names - LEFT_OUT - IMPLEMENTATION)
    while queue:
        name = queue.pop(0)
        if name.rpartition(".")[2] in ("test", "tests") or "._" in f".{name}":
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        yield name, module
        if name == "os":
            yield "os.path", module.path
        queue += [f"{name}.{part.name}" for part in pkgutil.iter_modules(getattr(module, "__path__", []))]


def belongs(value: Any, module: str) -> bool:
    """Whether a module without ``__all__`` defines a value, itself or by a private module, rather than imports it."""
    defined = getattr(value, "__module__", None) or ""
    return module in ("builtins", defined) or "._" in f".{defined}" or defined in IMPLEMENTATION


def underlying(value: Any) -> Any:
    """The function in a bound, class or static method: ``random.choice`` is ``random.Random.choice``."""
    owner = getattr(value, "__self__", None)
    if inspect.isbuiltin(value) and owner is not None and not inspect.isclass(owner) and not inspect.ismodule(owner):
        return getattr(type(owner), value.__name__, value)
    return getattr(value, "__func__", value)


def home(entries: Iterable[tuple[Name, Any, bool]]) -> tuple[Name, Any]:
    """Choose among the public names of one object.

    In this order: what is built in; its own name rather than an alias; its own module or a package around that rather
    than a module that imports it; listed in ``__all__``; the shortest path; the alphabet.
    """

    def order(entry: tuple[Name, Any, bool]) -> tuple[bool | int | Name, ...]:
        name, value, listed = entry
        defined = getattr(value, "__module__", None) or ""
        return (
            name.holder != "builtins",
            name.attribute != getattr(value, "__name__", None),
            not f"{defined.removeprefix('_')}.".startswith(f"{name.holder}."),
            not listed,
            name.holder.count("."),
            name,
        )

    return min(entries, key=order)[:2]


def members(classes: dict[type, str]) -> Iterator[tuple[str, Any]]:
    """Name the public members of classes, each by the class that defines it or, if private, the nearest public one."""
    nearest: dict[int, tuple[int, bool, int, str, Any]] = {}
    for owner, class_name in classes.items():
        seen: set[str] = set()
        for distance, base in enumerate(owner.__mro__):
            for attribute, value in vars(base).items():
                if attribute in seen or attribute.startswith("_"):
                    continue
                seen.add(attribute)
                if (base is owner or base not in classes) and not is_repeated(owner, base, attribute, classes):
                    name, function = f"{class_name}.{attribute}", underlying(value)
                    borrowed = not name.endswith(getattr(function, "__qualname__", name))  # UserString's str.maketrans
                    entry = (distance, borrowed, len(name), name, value)
                    nearest[id(function)] = min(entry, nearest.get(id(function), entry), key=lambda entry: entry[:4])
    for *_, name, value in nearest.values():
        if inspect.isroutine(value) or isinstance(value, PROPERTIES) or inspect.isgetsetdescriptor(value):
            yield name, value


def is_repeated(owner: type, base: type, attribute: str, classes: dict[type, str]) -> bool:
    """Whether a member has its docstring from a public class further up."""
    above = owner.__mro__[owner.__mro__.index(base) + 1 :]
    inherited = (vars(other)[attribute] for other in above if other in classes and attribute in vars(other))
    return docstring(vars(base)[attribute]) in map(docstring, inherited)


def docstring(value: Any) -> str:
    """An object's docstring without its indentation; some objects have a descriptor in its place."""
    text = getattr(value, "__doc__", None)
    return inspect.cleandoc(text) if isinstance(text, str) else ""


def described(name: str, value: Any) -> tuple[str, str]:
    """``(id, text)`` of an object; the text is empty where it has no docstring of its own."""
    value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    body = docstring(value)
    if inspect.isclass(value):
        # Dataclasses and named tuples without a docstring get their signature for one; some C classes get their base's.
        generated = re.fullmatch(rf"{value.__name__}\(.*\)", body)
        if generated or any(body == docstring(base) for base in value.__mro__[1:]):
            body = ""
        constructor = vars(value).get("__init__")
        if inspect.isfunction(constructor):
            body = f"{body}\n\n{docstring(constructor)}".strip()
    return name, body and f"{name}{signature(value)}\n\n{body}"


def signature(value: Any) -> str:
    """A callable's parameters without annotations; defaults that are no constants, or places here, become ``...``."""
    if isinstance(value, PROPERTIES) or inspect.isgetsetdescriptor(value):
        return ""
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (AttributeError, NameError, TypeError, ValueError):  # curses: defaults that exist once a terminal is open
        return ""
    if parameters and parameters[0].name in ("self", "cls", "type"):
        del parameters[0]
    plain = (type(None), bool, int, float, str, bytes)
    kept = []
    for parameter in parameters:
        default = parameter.default
        if default is not parameter.empty and (type(default) not in plain or os.path.isabs(str(default))):
            default = Ellipsis
        kept.append(parameter.replace(annotation=parameter.empty, default=default))
    return str(inspect.Signature(kept)).replace("Ellipsis", "...")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.modules["readline"] = None  # type: ignore[assignment]  # pdb would import it, and it sets up the terminal
    with contextlib.redirect_stdout(sys.stderr):
        collected = collect()
    json.dump(collected, sys.stdout)
