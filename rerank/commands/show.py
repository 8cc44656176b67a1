"""``rerank show``: the losses, models, measures and collections that can be named."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from importlib import import_module
from typing import Literal

from rerank.commands.options import without_markup
from rerank.errors import UserError, nearest
from rerank.progress import screen

DIRECT = "Relaxations: DirectMetric makes a measure (`rerank show measures`) differentiable with one of these"
SUM = "Terms: a sum of losses, each with a target (the relevance labels or a column), a weight and a scaling"


def show(what: Literal["losses", "models", "measures", "collections"], name: str | None = None) -> str:
    """List losses, models, measures or collections, or explain a loss.

    Args:
        what: losses, models, measures or collections.
        name: loss or relaxation to explain: formula, parameters, paper.
    """
    if name is not None:
        if what != "losses":
            raise UserError(f"{name}: only losses are explained; see the documentation of {what}")
        return explain(name)
    groups, note = {"losses": losses, "models": models, "measures": measures, "collections": collections}[what]()
    width = max(len(key) for lines in groups.values() for key in lines)
    parts = []
    for head, lines in groups.items():
        entries = textwrap.wrap(head, screen())
        for key, text in lines.items():
            first, others = f"  {key:<{width}}  ", " " * (width + 4)
            entries += textwrap.wrap(without_markup(text), screen(), initial_indent=first, subsequent_indent=others)
        parts.append("\n".join(entries))
    return "\n\n".join([*parts, "\n".join(textwrap.wrap(note, screen()))])


Lines = dict[str, dict[str, str]]
"""The first line of each entry's docstring, by name, by the heading of its group."""


def losses() -> tuple[Lines, str]:
    """Describe losses, relaxations and parts of a weighted sum."""
    groups = {head: first_lines(kinds) for head, kinds in _losses().items()}
    note = "`rerank show losses NAME` prints formula, parameters and paper. All take reduction='mean', 'sum' or 'none'."
    return groups, note


def models() -> tuple[Lines, str]:
    """Describe models and normalisers of features."""
    from rerank.features.normalise import NORMALISERS
    from rerank.models.load import MODELS

    note = "`rerank train --model.help NAME` lists a model's settings. Name a model of your own by its import path."
    return {"": first_lines(loaded(MODELS)), "Normalisers of features": first_lines(loaded(NORMALISERS))}, note


def measures() -> tuple[Lines, str]:
    """Describe the measures that can be trained on and monitored."""
    from rerank.measures.names import MEASURES

    note = "Names are those of ir-measures, such as nDCG@10 or AP(rel=2); `rerank evaluate` takes all of ir-measures."
    return {"": first_lines(MEASURES)}, note


def collections() -> tuple[Lines, str]:
    """Describe the collections that can be read."""
    from rerank.collections.names import KINDS, DemoCollection, IrDataset

    kinds = {"an id": IrDataset, "demo": DemoCollection} | {f"{prefix}:": kind for prefix, kind in KINDS.items()}
    return {"": first_lines(kinds)}, "Files may be compressed: .gz, .xz, .zst, .bz2."


def explain(name: str) -> str:
    """Format the signature and the docstring of a loss or relaxation."""
    kinds = {key: kind for group in _losses().values() for key, kind in group.items()}
    if name not in kinds:
        raise UserError(f"{name}: unknown loss{nearest(name, kinds)}; `rerank show losses` lists all")
    parameters = inspect.signature(kinds[name]).parameters.values()
    arguments = [
        parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"
        for parameter in parameters
        if parameter.name != "reduction"
    ]
    return f"{name}({', '.join(arguments)})\n\n{without_markup(inspect.getdoc(kinds[name]) or '')}"


def loaded(homes: Mapping[str, str]) -> dict[str, object]:
    """Import the classes of a table of modules by class name."""
    return {name: getattr(import_module(module), name) for name, module in homes.items()}


def first_lines(kinds: Mapping[str, object]) -> dict[str, str]:
    """Take the first line of each docstring."""
    return {name: (inspect.getdoc(kind) or "").partition("\n")[0] for name, kind in kinds.items()}


def _losses() -> dict[str, dict[str, type]]:
    all_losses, relaxations = import_module("rerank.losses"), import_module("rerank.relaxations")
    return {"": all_losses.load_all(), DIRECT: relaxations.load_all(), SUM: all_losses.load_parts()}
