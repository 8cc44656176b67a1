"""``rerank show``: the classes that options and configurations can name."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any, Literal

from rerank.commands.options import without_markup
from rerank.errors import UserError, nearest
from rerank.progress import screen
from rerank.settings.arguments import find_class

DIRECT = "Relaxations: DirectMetric makes a measure (`rerank show measures`) differentiable with one of these"
SUM = "Terms: a sum of losses, each with a target (the relevance labels or a column), a weight and a scaling"


NOTES = {
    "losses": "All take reduction='mean', 'sum' or 'none'.",
    "models": "Name a model of your own by its import path.",
    "measures": "Names are those of ir-measures; `rerank evaluate` takes all of its measures.",
    "collections": "Files may be compressed: .gz, .zst, .bz2.",
}


def show(
    what: Literal["losses", "models", "data", "samplers", "measures", "collections"], name: str | None = None
) -> str:
    """List what options can name, or explain one entry.

    Args:
        what: losses, models, data, samplers, measures or collections.
        name: the one to explain: parameters, formula, paper.
    """
    groups = _classes(what)
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
    note = f"{NOTES.get(what, '')} `rerank show {what} NAME` explains one."
    return "\n\n".join([*parts, *textwrap.wrap(note.strip(), screen())])


def _classes(what: str) -> dict[str, dict[str, Any]]:
    """Import the classes of a kind, by the heading of their group and by name."""
    if what == "losses":
        from rerank import losses, relaxations

        parts = {name: getattr(losses, name) for name in losses.PARTS}
        smooth = {name: getattr(relaxations, name) for name in relaxations.RELAXATIONS}
        return {"": {name: getattr(losses, name) for name in losses.LOSSES}, DIRECT: smooth, SUM: parts}
    if what == "measures":
        from rerank.measures.names import MEASURES

        return {"": dict(MEASURES)}
    if what == "collections":
        from rerank.collections.names import IR_DATASET, KINDS

        paths = {"an id": IR_DATASET, **KINDS}
        return {"": {name: find_class(path, object, name) for name, path in paths.items()}}
    from rerank.training.configuration import classes_of

    others = {"Normalisers of features": classes_of("normalise")} if what == "models" else {}
    return {"": classes_of(what.removesuffix("s")), **others}


def explain(name: str, kind: Any) -> str:
    """Format the signature and the docstrings of a class."""
    constructor = vars(kind).get("__init__")  # getdoc would give one without a docstring that of object's
    texts = [inspect.getdoc(kind), inspect.cleandoc(getattr(constructor, "__doc__", None) or "")]
    parameters = inspect.signature(kind).parameters.values()
    arguments = [
        parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"
        for parameter in parameters
        if parameter.name != "reduction"  # every loss has it
    ]
    return "\n\n".join([f"{name}({', '.join(arguments)})", *(without_markup(text) for text in texts if text)])
