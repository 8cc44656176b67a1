"""What losses there are, from their docstrings: `rerank losses`."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from rerank.errors import UserError, nearest

WIDTH = 110
COMMON = ("reduction", "validate")
HEAD = "Every loss also takes reduction='mean' ('sum', 'none') and validate=False. `rerank losses NAME` says more."
DIRECT = "A DirectMetric is a measure (P, AP, nDCG, nERR, RR, R, Success) × one of these relaxations:"
SUM = "Terms are a sum of losses, each with a target (the grades, or a column), a weight and a scaling:"


def listing(name: str | None = None) -> str:
    """Name, parameters with defaults, and paper of every loss, relaxation and part of a sum; of one all that it says.

    Args:
        name: one of them; None lists all.

    Raises:
        UserError: no loss or relaxation of this name.
    """
    from rerank import losses as all_losses
    from rerank import relaxations as all_relaxations

    losses, relaxations, parts = all_losses.load_all(), all_relaxations.load_all(), all_losses.load_parts()
    if name is None:
        shown: list[str] = [HEAD]
        for head, kinds in (("", losses), (DIRECT, relaxations), (SUM, parts)):
            shown += [head] * bool(head) + [_entry(*item) for item in kinds.items()]
        return "\n\n".join(shown)
    known = {**losses, **relaxations, **parts}
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


def _entry(name: str, kind: type) -> str:
    """A call and, indented, the first paragraph of the docstring and the one that names the source."""
    paragraphs = [" ".join(text.split()) for text in (inspect.getdoc(kind) or "").split("\n\n")]
    sources = [text.removeprefix("Source: ") for text in paragraphs[1:] if text.startswith("Source: ")]
    wrapped = (_wrapped(_plain(text), 4) for text in paragraphs[:1] + sources)
    return "\n".join([textwrap.fill(_call(name, kind), WIDTH, subsequent_indent=" " * (len(name) + 1)), *wrapped])


def _plain(text: str) -> str:
    """Without reStructuredText's marks."""
    return re.sub(r":\w+:`([^`]*)`", r"\1", text).replace("``", "")


def _wrapped(text: str, indent: int) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent)
