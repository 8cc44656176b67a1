"""Collect names, signatures and first sentences of docstrings from the standard library of this Python.

Runs as a script in its own interpreter (``python -I -S -B documents.py``), so that importing three hundred modules
changes nothing in the calling process, and other packages change nothing here.
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
from collections.abc import Iterator
from types import ModuleType
from typing import Any

# These open windows, print, touch the terminal, or have no API; those of the second group are gone from Python 3.14.
# fmt: off
LEFT_OUT = frozenset([
    "__phello__", "antigravity", "encodings", "ensurepip", "idlelib", "pip", "pydoc_data", "readline", "rlcompleter",
    "test", "this", "tkinter", "turtle", "turtledemo",

    "aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "distutils", "imghdr", "imp",
    "lib2to3", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "smtpd", "sndhdr", "spwd", "sunau",
    "telnetlib", "uu", "xdrlib",
])
# fmt: on
IMPLEMENTATION = frozenset(["genericpath", "nt", "ntpath", "nturl2path", "posix", "posixpath"])  # of os and os.path
SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s+[^\sa-z]|\s*$)|\n\s*\n")


def collect() -> list[tuple[str, str, str]]:
    """Collect ``(name, signature, first sentence)`` of all public classes, functions, methods and properties.

    An object with several public names appears once. Members appear in the class that defines them, unless they repeat
    a base class's docstring.
    """
    names: dict[int, tuple[tuple[Any, ...], str, Any]] = {}
    for module_name, module in public_modules():
        listed = getattr(module, "__all__", None)
        for attribute in sorted(set(vars(module) if listed is None else listed)):
            value = getattr(module, attribute, None)
            public = not attribute.startswith("_") and (inspect.isclass(value) or inspect.isroutine(value))
            if public and (listed is not None or is_defined_in(value, module_name)):
                order = preference(module_name, attribute, value, listed is not None)
                name = attribute if module_name == "builtins" else f"{module_name}.{attribute}"
                entry = (order, name, value)
                function = id(getattr(value, "__func__", value))  # random.choice is a method of a random.Random
                names[function] = min(entry, names.get(function, entry), key=lambda entry: entry[0])
    found = {name: value for _, name, value in names.values()}
    for name, value in list(found.items()):
        if inspect.isclass(value):
            found |= {f"{name}.{attribute}": member for attribute, member in members(value) if id(member) not in names}
    rows = [(name, signature(value), first_sentence(name, value)) for name, value in sorted(found.items())]
    return [row for row in rows if row[2]]


def public_modules() -> Iterator[tuple[str, ModuleType]]:
    """Import the public modules of the standard library that this platform has."""
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


def is_defined_in(value: Any, module: str) -> bool:
    """Tell definitions from imports in a module without ``__all__``; private modules count as part of it."""
    defined = getattr(value, "__module__", None) or ""
    return module in ("builtins", defined) or "._" in f".{defined}" or defined in IMPLEMENTATION


def preference(module: str, attribute: str, value: Any, listed: bool) -> tuple[Any, ...]:
    """Sort key of an object's names: built in, its own name, its own module, in ``__all__``, short, alphabetical."""
    defined = getattr(value, "__module__", None) or ""
    own = f"{defined.removeprefix('_')}.".startswith(f"{module}.")
    alias = attribute != getattr(value, "__name__", None)
    return module != "builtins", alias, not own, not listed, module.count("."), module, attribute


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield a class's own public members whose docstrings no base class has."""
    properties = (property, functools.cached_property)
    for attribute, value in vars(owner).items():
        if attribute.startswith("_") or inspect.isclass(value):
            continue
        if inspect.isroutine(value) or isinstance(value, properties) or inspect.isgetsetdescriptor(value):
            inherited = (docstring(vars(base)[attribute]) for base in owner.__mro__[1:] if attribute in vars(base))
            if docstring(value) not in inherited:
                yield attribute, value


def docstring(value: Any) -> str:
    """Return an object's docstring without its indentation; some objects have a descriptor in its place."""
    text = getattr(value, "__doc__", None)
    return inspect.cleandoc(text) if isinstance(text, str) else ""


def first_sentence(name: str, value: Any) -> str:
    """Return the first sentence of a docstring; empty if it begins with code or belongs to a base class."""
    text = docstring(value)
    if inspect.isclass(value) and any(text == docstring(base) for base in value.__mro__[1:]):
        return ""
    text = re.sub(rf"\A(\S*\b{re.escape(name.rpartition('.')[2])} ?\([^\n]*\n\s*)*", "", text)  # repeated signature
    end = SENTENCE_END.search(text)
    sentence = " ".join(text[: end.end() if end else None].split())
    return sentence if re.match(r"[A-Z][^=>]*\Z", sentence) else ""


def signature(value: Any) -> str:
    """Return a callable's parameters without annotations; defaults other than constants become ``...``."""
    value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (AttributeError, NameError, TypeError, ValueError):
        return ""
    if parameters and parameters[0].name in ("self", "cls", "type"):
        del parameters[0]
    shown = []
    for parameter in parameters:
        default = parameter.default
        constant = type(default) in (type(None), bool, int, float, str, bytes) and not os.path.isabs(str(default))
        if default is not parameter.empty and not constant:
            default = Ellipsis
        shown.append(parameter.replace(annotation=parameter.empty, default=default))
    return str(inspect.Signature(shown)).replace("Ellipsis", "...")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.modules["readline"] = None  # type: ignore[assignment]  # pdb would import it, and it sets up the terminal
    with contextlib.redirect_stdout(sys.stderr):
        collected = collect()
    json.dump(collected, sys.stdout)
