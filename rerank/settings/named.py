"""Classes that people name by their import paths."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from rerank.errors import NotFoundError, UserError, one_line


def find_class(path: str, base: type, where: str) -> type[Any]:
    """The class that an import path names, imported and looked at, but not called.

    Importing runs the module, which is therefore code that a user trusts. Nothing in it is called unless it is what is
    wanted: a class of the right kind, never a function or an object that happens to take the same arguments.

    >>> find_class("collections.OrderedDict", dict, "key")
    <class 'collections.OrderedDict'>
    """
    module, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:  # ValueError: there is no module in the path
        raise UserError(f"{where}: {path!r} cannot be imported ({one_line(error)})") from error
    if not isinstance(found, type):
        raise UserError(f"{where}: {path} is {type(found).__name__}, no class, and only classes are called")
    if not issubclass(found, base):
        raise UserError(f"{where}: {path} is no {base.__module__}.{base.__qualname__}")
    return found


def find_own_classes() -> None:
    """Let classes of the working directory be named by their import path, behind all that is installed."""
    try:
        here = os.getcwd()
    except FileNotFoundError as error:
        raise NotFoundError("the working directory was removed; change to one that is there") from error
    if here not in sys.path:
        sys.path.append(here)
