"""Names of a package that are imported at their first use, so that importing the package stays cheap (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def find(package: str, homes: Mapping[str, str], name: str) -> Any:
    """Import a name from its home, a module of the package, and keep it there, for a module's ``__getattr__``."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    value = getattr(import_module(f"{package}.{homes[name]}"), name)
    setattr(sys.modules[package], name, value)
    return value
