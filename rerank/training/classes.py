"""The classes that a configuration may name by their names alone: where they are, and what they say of themselves."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rerank import losses, relaxations
from rerank.models.load import MODELS, NORMALISERS

DATA = {"ListsData": "rerank.lists.data", "FoldsData": "rerank.lists.folds", "LetorData": "rerank.features.letor"}
SAMPLERS = dict.fromkeys(("Full", "Random", "PositivesNegatives", "Pairs"), "rerank.lists.sampling")


def import_classes() -> list[str]:
    """Import all of them, so that the parser finds them by name; returns the names."""
    own = DATA | SAMPLERS | NORMALISERS | MODELS
    for name, module in own.items():
        getattr(import_module(module), name)
    return [*losses.load_all(), *losses.load_parts(), *relaxations.load_all(), *own]


def first_lines(homes: Mapping[str, str]) -> dict[str, str]:
    """The first line of each class's docstring, read from its file: importing it might import torch."""
    lines = {}
    for name, module in homes.items():
        spec = find_spec(module)
        assert spec is not None and spec.origin is not None
        lines[name] = docstrings(Path(spec.origin))[name].partition("\n")[0]
    return lines


def docstrings(path: Path) -> dict[str, str]:
    """What the classes of a file say of themselves."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name: ast.get_docstring(node) or "" for node in nodes if isinstance(node, ast.ClassDef)}
