"""What there is to choose from, a line each, as the classes describe themselves: `rerank models` and the like."""

from __future__ import annotations

import inspect
import re
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping
from importlib import import_module

from rerank.errors import UserError, nearest
from rerank.settings.help import screen

WIDTH = 90
"""Characters that an entry may say of itself."""

DIRECT = "A DirectMetric is a measure (`rerank measures`) made differentiable by one of these relaxations:"
SUM = "Terms are a sum of losses, each with a target (the grades, or a column), a weight and a scaling:"


def models() -> str:
    """List the models."""
    from rerank.models.load import MODELS, NORMALISERS
    from rerank.training.configuration import first_lines

    foot = "`rerank train --model.help NAME` says what goes into one. A model of your own is named by its import path."
    return _page({"": first_lines(MODELS), "Normalisers of features:": first_lines(NORMALISERS)}, foot)


def measures() -> str:
    """List the measures that can be trained on."""
    import rerank.measures
    from rerank.measures.names import MEASURES

    foot = (
        "Names are those of ir-measures: nDCG@10, AP(rel=2), nDCG(dcg='exp-log2')@10. These can be trained on and "
        "monitored;\n`rerank evaluate --measures` takes all that ir-measures has."
    )
    return _page({"": _said({name: getattr(rerank.measures, name) for name in MEASURES})}, foot)


def collections() -> str:
    """List the collections that can be read."""
    from rerank.collections.names import KINDS, DemoCollection, IrDataset

    kinds = {"an id": IrDataset, "demo": DemoCollection} | {f"{prefix}:": kind for prefix, kind in KINDS.items()}
    return _page({"": _said(kinds)}, "Files may be compressed: .gz, .xz, .zst, .bz2.")


def losses(name: str | None = None) -> str:
    """List the losses, or explain one: formula, parameters, paper.

    Args:
        name: the loss to explain.
    """
    all_losses, relaxations = import_module("rerank.losses"), import_module("rerank.relaxations")
    groups = {"": all_losses.load_all(), DIRECT: relaxations.load_all(), SUM: all_losses.load_parts()}
    kinds = {key: kind for group in groups.values() for key, kind in group.items()}
    if name is None:
        foot = (
            "`rerank losses NAME` shows what one computes, its parameters and its paper. A loss with a paper's name\n"
            "computes the paper's formula, unless an argument that is ours is given: 'spread' for alpha, tau or\n"
            "strength, half_rank, steady.\n"
            "Every loss also takes reduction='mean' ('sum', 'none')."
        )
        return _page({head: _said(group) for head, group in groups.items()}, foot)
    if name not in kinds:
        raise UserError(f"no loss {name!r}{nearest(name, kinds)}; `rerank losses` lists all")
    return f"{name}({', '.join(_parameters(kinds[name]))})\n\n{_plain(inspect.getdoc(kinds[name]) or '')}"


LETTERS = """sum ∑ prod ∏ ell ℓ cdot · le ≤ leq ≤ ge ≥ geq ≥ ne ≠ in ∈ infty ∞ ldots … dots … times × to → neg ¬ top T
mid | sqrt √ varepsilon ε propto ∝ lceil ⌈ rceil ⌉"""

SYMBOLS = dict(re.findall(r"(\S+) (\S+)", LETTERS)) | {"quad": "  ", "qquad": "   "}
SILENT = ("left", "right", "bigl", "bigr", "Bigl", "Bigr", "big", "Big", "displaystyle", "limits")


def _plain(doc: str) -> str:
    """A docstring as a terminal shows it: formulas in letters, no marks."""
    lines = []
    inside = False  # a formula's block
    for line in re.sub(r":math:`([^`]*)`", lambda found: _formula(found[1]), doc).splitlines():
        inside = line.startswith(".. math::") or (inside and (not line.strip() or line.startswith(" ")))
        line = line.replace(".. math::", "   ") if inside else line
        lines.append(_formula(line) if inside else re.sub(r":\w+:`~?([^`]*)`", r"\1", line).replace("``", ""))
    return "\n".join(lines)


def _formula(text: str) -> str:
    r"""TeX in plain letters.

    >>> _formula(r"\frac{1}{|P|} \sum_{i} \log \sigma(s_i)")
    '(1)/(|P|) ∑_{i} log σ(s_i)'
    """
    text = re.sub(r"\\t?frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)", text)

    def letter(found: re.Match[str]) -> str:
        name = found[1]
        if name in SILENT:
            return ""
        try:
            return SYMBOLS.get(name) or unicodedata.lookup(f"GREEK SMALL LETTER {name.upper()}")
        except KeyError:
            return name

    text = re.sub(r"\\(?:mathrm|mathcal|operatorname|text)\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\[,;!:]|\\ ", " ", text).replace(r"\|", "‖")
    return re.sub(r"\\([{}])", r"\1", re.sub(r"\\([A-Za-z]+)", letter, text))


def _parameters(kind: type) -> Iterator[str]:
    """``name=default`` of every parameter but the one that all losses have."""
    for key, parameter in inspect.signature(kind).parameters.items():
        default = parameter.default
        if default is parameter.empty:
            yield key
        elif key != "reduction":
            yield f"{key}={default:g}" if isinstance(default, float) else f"{key}={default!r}"


def _said(kinds: Mapping[str, object]) -> dict[str, str]:
    return {name: (inspect.getdoc(kind) or "").partition("\n")[0] for name, kind in kinds.items()}


def _page(groups: Mapping[str, Mapping[str, str]], foot: str) -> str:
    """A line for each entry, without reStructuredText's marks, below the heads of their groups."""
    width = max(len(name) for lines in groups.values() for name in lines)
    parts = []
    for head, lines in groups.items():
        entries = textwrap.wrap(head, screen())
        for name, text in lines.items():
            plain = re.sub(r":\w+:`([^`]*)`", r"\1", text).replace("``", "")
            short = textwrap.shorten(plain, WIDTH, placeholder=" …")
            first, others = f"  {name:<{width}}  ", " " * (width + 4)
            entries += textwrap.wrap(short, screen(), initial_indent=first, subsequent_indent=others)
        parts.append("\n".join(entries))
    return "\n\n".join([*parts, "\n".join(textwrap.wrap(foot, screen()))])
