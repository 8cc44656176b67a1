"""What there is to choose from, a line each, as the classes describe themselves: `rerank models` and the like."""

from __future__ import annotations

import ast
from pathlib import Path

WIDTH = 110


def models() -> str:
    """Every model, and the normalisers of features."""
    from rerank.models.load import MODELS, NORMALISERS
    from rerank.training.classes import first_lines

    foot = "`rerank train --model.help NAME` says what goes into one. A model of your own is named by its import path."
    return _page({"": first_lines(MODELS), "Normalisers of features:": first_lines(NORMALISERS)}, foot)


def measures() -> str:
    """Every measure that can be trained on; evaluation takes all of ir-measures."""
    import rerank.measures
    from rerank.measures.names import MEASURES

    lines = {name: _first_line(getattr(rerank.measures, name)) for name in MEASURES}
    foot = (
        "Names are those of ir-measures: nDCG@10, AP(rel=2), nDCG(dcg='exp-log2')@10. These can be trained on and "
        "monitored;\n`rerank evaluate --measures` takes all that ir-measures has."
    )
    return _page({"": lines}, foot)


def collections() -> str:
    """Every kind of collection that ``--collection`` takes."""
    import rerank.collections
    from rerank.collections.names import PREFIXES

    said = {}
    for path in sorted(Path(rerank.collections.__path__[0]).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and (text := ast.get_docstring(node)):
                said[node.name] = " ".join(text.partition("\n\n")[0].split())
    lines = {"an id": said["IrDataset"], "demo": said["DemoCollection"]}
    for prefix in PREFIXES:  # a collection's documentation begins with how it is written
        (text,) = (text for text in said.values() if text.startswith(f"``{prefix}"))
        lines[prefix] = text
    return _page({"": lines}, "Files may be compressed: .gz, .xz, .zst, .bz2.")


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]


def _page(groups: dict[str, dict[str, str]], foot: str) -> str:
    width = max(len(name) for lines in groups.values() for name in lines)
    shown = []
    for head, lines in groups.items():
        entries = (f"  {name:<{width}}  {text.replace('``', '')}" for name, text in lines.items())
        shown.append("\n".join([head] * bool(head) + [_cut(entry) for entry in entries]))
    return "\n\n".join([*shown, foot])


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 2].rpartition(" ")[0] + " …"
