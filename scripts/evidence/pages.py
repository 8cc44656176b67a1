"""Pages that show recomputed tables, and what differs between them and the saved values."""

from __future__ import annotations

import re

from scripts.evidence import papers, studies  # noqa: F401, they register their tables
from scripts.evidence.statistics import TABLES, markdown
from scripts.evidence.values import ROOT

BLOCK = re.compile(r"(<!-- table: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.\-/])[+−]?\.\d{3,}")
"""A measure or a difference as it is written here: without the leading zero."""

CHECKED = re.compile(r"(README|docs/evidence|docs/studies/.*)\.md")
"""Pages whose results may only repeat numbers of tables."""

MARGINS = {".005"}


def pages() -> dict[str, str]:
    """Read README and the documentation."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def filled(text: str) -> str:
    """Return a page with its tables recomputed."""
    return BLOCK.sub(lambda block: f"{block[1]}\n{markdown(block[2])}\n\n{block[4]}", text)


def problems(texts: dict[str, str]) -> list[str]:
    """List tables that differ from the saved values, and numbers in prose that no table has."""
    found = []
    shown: set[str] = set()
    for page, text in texts.items():
        for block in BLOCK.finditer(text):
            if block[2] not in TABLES:
                found.append(f"{page}: unknown table {block[2]}; remove it or register it in scripts/evidence")
            elif block[3].strip() != markdown(block[2]):
                found.append(f"{page}: table {block[2]} differs from the saved values; run with --write")
            shown.update(NUMBER.findall(block[3]))
    for page, text in texts.items():
        if CHECKED.fullmatch(page):
            text = text.partition("## Results")[2].partition("\n## ")[0] if page == "README.md" else text
            numbers = set(NUMBER.findall(BLOCK.sub("", text))) - shown - MARGINS
            found += [f"{page}: {number} is in no table" for number in sorted(numbers)]
    return found
