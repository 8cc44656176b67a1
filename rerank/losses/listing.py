"""What losses there are, from their docstrings: `rerank losses`."""

from __future__ import annotations

import inspect
import re
import textwrap

from rerank.errors import UserError, nearest

WIDTH = 110
COMMON = ("reduction", "validate")


def listing(name: str | None = None) -> str:
    """Name, parameters with defaults, and paper of every loss; of one loss its whole docstring.

    Args:
        name: a loss; None lists all.

    Raises:
        UserError: no loss of this name.
    """
    from rerank.losses import load_all

    classes = load_all()
    if name is None:
        head = (
            "Every loss also takes reduction='mean' ('sum', 'none') and validate=False. `rerank losses NAME` says more."
        )
        return "\n\n".join([head, *(_entry(known, kind) for known, kind in classes.items())])
    if name not in classes:
        raise UserError(f"no loss {name!r}{nearest(name, classes)}; known: {', '.join(classes)}")
    return f"{_call(name, classes[name])}\n\n{inspect.cleandoc(classes[name].__doc__ or '')}"


def source_of(kind: object) -> str:
    """The sentence of a docstring that begins with ``Source:``, on one line without that word; or the empty string."""
    paragraphs = (inspect.getdoc(kind) or "").split("\n\n")
    found = re.search(r"\bSource: (.*)", " ".join(next((p for p in paragraphs if "Source: " in p), "").split()))
    return found[1] if found else ""


def _call(name: str, kind: object) -> str:
    shown = []
    for key, parameter in inspect.signature(kind).parameters.items():  # type: ignore[arg-type]
        default = parameter.default
        if default is parameter.empty:
            shown.append(key)
        elif key not in COMMON:
            shown.append(f"{key}={default:g}" if isinstance(default, float) else f"{key}={default!r}")
    return f"{name}({', '.join(shown)})"


def _entry(name: str, kind: object) -> str:
    first = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
    lines = [_call(name, kind), *(_indented(text) for text in (first, source_of(kind)) if text)]
    return "\n".join(lines)


def _indented(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
