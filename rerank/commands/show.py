"""``rerank show``: the classes that options and configurations can name."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

from rerank.commands.options import without_markup
from rerank.errors import UserError, nearest
from rerank.progress import screen

DIRECT = "Relaxations: DirectMetric makes a measure (`rerank show measures`) differentiable with one of these"
SUM = "Terms: a sum of losses, each with a target (the relevance labels or a column), a weight and a scaling"


Kinds = dict[str, dict[str, Any]]
"""Classes by name, by the heading of their group."""


def show(
    what: Literal["losses", "models", "data", "samplers", "measures", "collections"], name: str | None = None
) -> str:
    """List what options can name, or explain one entry.

    Args:
        what: losses, models, data, samplers, measures or collections.
        name: the one to explain: parameters, formula, paper.
    """
    tables = {"losses": losses, "models": models, "data": data, "samplers": samplers}
    groups, note = (tables | {"measures": measures, "collections": collections})[what]()
    kinds = {key: kind for group in groups.values() for key, kind in group.items()}
    if name is not None:
        if name not in kinds:
            raise UserError(f"{name}: not one of the {what}{nearest(name, kinds)}; `rerank show {what}` lists them")
        return explain(name, kinds[name])
    width = max(map(len, kinds))
    parts = []
    for head, group in groups.items():
        entries = textwrap.wrap(head, screen())
        for key, kind in group.items():
            text = without_markup((inspect.getdoc(kind) or "").partition("\n")[0])
            first, others = f"  {key:<{width}}  ", " " * (width + 4)
            entries += textwrap.wrap(text, screen(), initial_indent=first, subsequent_indent=others)
        parts.append("\n".join(entries))
    return "\n\n".join([*parts, "\n".join(textwrap.wrap(note, screen()))])


def losses() -> tuple[Kinds, str]:
    """Group losses, relaxations and parts of a weighted sum."""
    from rerank import losses, relaxations

    note = "`rerank show losses NAME` prints formula, parameters and paper. All take reduction='mean', 'sum' or 'none'."
    return {"": losses.load_all(), DIRECT: relaxations.load_all(), SUM: losses.load_parts()}, note


def models() -> tuple[Kinds, str]:
    """Group models and normalisers of features."""
    from rerank.features.normalise import NORMALISERS
    from rerank.models.load import MODELS

    note = "`rerank show models NAME` explains a model's settings. Name a model of your own by its import path."
    return {"": _loaded(MODELS), "Normalisers of features": _loaded(NORMALISERS)}, note


def data() -> tuple[Kinds, str]:
    """Find the sources of training lists."""
    from rerank.training.configuration import DATA

    return {"": _loaded(DATA)}, "`rerank show data NAME` explains the keys of one of them."


def samplers() -> tuple[Kinds, str]:
    """Find the samplers of candidates."""
    from rerank.training.configuration import SAMPLERS

    return {"": _loaded(SAMPLERS)}, "`rerank show samplers NAME` explains the keys of one of them."


def measures() -> tuple[Kinds, str]:
    """Find the measures that can be trained on and monitored."""
    from rerank.measures.names import MEASURES

    note = "Names are those of ir-measures, such as nDCG@10 or AP(rel=2); `rerank evaluate` takes all of ir-measures."
    return {"": dict(MEASURES)}, note


def collections() -> tuple[Kinds, str]:
    """Find the collections that can be read."""
    from rerank.collections.names import KINDS, DemoCollection, IrDataset

    kinds = {"an id": IrDataset, "demo": DemoCollection} | {f"{prefix}:": kind for prefix, kind in KINDS.items()}
    return {"": kinds}, "Files may be compressed: .gz, .xz, .zst, .bz2."


def explain(name: str, kind: Any) -> str:
    """Format the signature and the docstrings of a class."""
    texts = [inspect.getdoc(kind), inspect.getdoc(vars(kind).get("__init__"))]
    parameters = inspect.signature(kind).parameters.values()
    arguments = [
        parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"
        for parameter in parameters
        if parameter.name != "reduction"  # every loss has it
    ]
    return "\n\n".join([f"{name}({', '.join(arguments)})", *(without_markup(text) for text in texts if text)])


def _loaded(homes: Mapping[str, str]) -> dict[str, Any]:
    """Import the classes of a table of modules by class name."""
    return {name: getattr(import_module(module), name) for name, module in homes.items()}
