"""A directive that documents all public names of a module, so that none can be forgotten."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any, get_origin

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from rerank.settings.arguments import Described

ROOMS = (
    "rerank.losses",
    "rerank.relaxations",
    "rerank.measures",
    "rerank.lists",
    "rerank.collections",
    "rerank.retrieval",
    "rerank.models.load:MODELS",
    "rerank.features.normalise:NORMALISERS",
    "rerank.training.configuration:DATA",
    "rerank.training.configuration:SAMPLERS",
    "rerank.training.config.TrainConfig",
    "rerank.training.config.Optimization",
    "rerank.training.fit.fit",
    "rerank.training.fit.Training",
    "rerank.models.load.load_model",
    "rerank.models.load.Interpolated",
)
"""Public names besides those of the package itself."""


def public(what: str) -> list[str]:
    """List the dotted names of what is public.

    Args:
        what: a module, for its ``__all__``; ``MODULE:TABLE``, for a table of classes and their modules; or one name.
    """
    module, _, table = what.partition(":")
    if table:
        return [f"{home}.{name}" for name, home in getattr(import_module(module), table).items()]
    try:
        found = import_module(what)
    except ModuleNotFoundError:
        return [what]
    names = [name for name in found.__all__ if not inspect.ismodule(getattr(found, name))]
    return [f"{what}.{name}" for name in names]


def found(name: str) -> Any:
    """Import the object that a dotted name names."""
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)


def entry(name: str) -> list[str]:
    """The lines of reStructuredText that document a name."""
    value = found(name)
    if inspect.isclass(value) and get_origin(value) is None:
        return [f".. autoclass:: {name}", ""]
    if inspect.isfunction(value):
        return [f".. autofunction:: {name}", ""]
    return [f".. py:data:: {name}", f"   :value: {value}", ""]  # a type by another name


def pointer(name: str) -> list[str]:
    """The lines that name what another page documents."""
    homes = {id(found(other)): other for room in ROOMS for other in public(room)}
    home = homes.get(id(found(name)))
    return [f"- ``{name}`` is :py:obj:`{home}`", ""] if home else []


class Public(SphinxDirective):
    """``.. public:: rerank.losses``: every public name, once on the whole site."""

    required_arguments = 1
    optional_arguments = 20

    def run(self) -> list[nodes.Node]:
        """Document the names, or point to where they are documented."""
        lines = []
        for what in self.arguments:
            for name in public(what):
                lines += (what == "rerank" and pointer(name)) or entry(name)
        return self.parse_text_to_nodes(StringList(lines, "public"))


def signature(app: Sphinx, what: str, name: str, value: Any, *rest: Any) -> tuple[str, None] | None:
    """A class's own parameters: objects that remember them have a ``__new__`` that takes anything."""
    return (str(inspect.signature(value)), None) if what == "class" and issubclass(value, Described) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("public", Public)
    app.connect("autodoc-process-signature", signature)
    return {"parallel_read_safe": True}
