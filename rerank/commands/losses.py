"""A list of the losses, from their docstrings: `rerank losses`."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from rerank.errors import UserError, nearest

WIDTH = 110
COMMON = ("reduction",)
DIRECT = "A DirectMetric is a measure (`rerank measures`) made differentiable by one of these relaxations:"
SUM = "Terms are a sum of losses, each with a target (the grades, or a column), a weight and a scaling:"
FOOT = (
    "`rerank losses NAME` says what one computes, its parameters and its paper.\n"
    "Every loss also takes reduction='mean' ('sum', 'none')."
)


def listing(name: str | None = None) -> str:
    """One line for each loss, relaxation and part of a sum; or the whole definition of one.

    Args:
        name: one of them; None lists all.

    Raises:
        UserError: no loss or relaxation of this name.
    """
    from rerank import losses as all_losses
    from rerank import relaxations as all_relaxations

    losses, relaxations, parts = all_losses.load_all(), all_relaxations.load_all(), all_losses.load_parts()
    known = {**losses, **relaxations, **parts}
    if name is None:
        width = max(map(len, known))
        groups = (("", losses), (DIRECT, relaxations), (SUM, parts))
        shown = [[head] * bool(head) + [_entry(*item, width) for item in kinds.items()] for head, kinds in groups]
        return "\n\n".join(["\n".join(lines) for lines in shown] + [FOOT])
    if name not in known:
        raise UserError(f"no loss {name!r}{nearest(name, known)}; known: {', '.join(known)}")
    return f"{_call(name, known[name])}\n\n{inspect.getdoc(known[name])}"


def _call(name: str, kind: type) -> str:
    return f"{name}({', '.join(_parameters(kind))})"


def _parameters(kind: type) -> Iterator[str]:
    """``name=default`` of every parameter but those that all losses have."""
    for key, parameter in inspect.signature(kind).parameters.items():
        if parameter.default is parameter.empty:
            yield key
        elif key not in COMMON:
            yield f"{key}={_short(parameter.default)}"


def _short(default: Any) -> str:
    return f"{default:g}" if isinstance(default, float) else repr(default)


def _entry(name: str, kind: type, width: int) -> str:
    """The name and the first line of the docstring, without reStructuredText's marks."""
    first = (inspect.getdoc(kind) or "").partition("\n")[0]
    plain = re.sub(r":\w+:`([^`]*)`", r"\1", first).replace("``", "")
    return f"  {name:<{width}}  {textwrap.shorten(plain, WIDTH - width - 4, placeholder=' …')}"
