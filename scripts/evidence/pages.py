"""The pages that hold tables and claims, and what differs between them and the kept values."""

from __future__ import annotations

import functools
import re

from scripts.evidence import effects  # noqa: F401, whose tables no claim names
from scripts.evidence.claims import claims
from scripts.evidence.kept import ROOT, STUDIES
from scripts.evidence.statistics import MARGIN, TABLES, markdown, plain

BLOCK = re.compile(r"(<!-- table: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
PAGES = [f"docs/{name}.md" for name in ("evidence", "internals/speed", "lists", "training")]

NUMBER = re.compile(r"(?<![\w.\-/])[+−]?\.\d{3,}")
"""A number without a leading zero, as measures and differences are written."""


@functools.cache
def made(name: str) -> str:
    """A table, as the kept values have it."""
    return markdown(TABLES[name]())


def pages() -> dict[str, str]:
    """The pages that have tables or claims."""
    paths = [ROOT / "README.md", *(ROOT / page for page in PAGES), *sorted(STUDIES.glob("*.md"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def filled(text: str) -> str:
    """A page with its tables as the kept values have them."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{made(found[2])}\n\n{found[4]}", text)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("*", ""))


def problems(texts: dict[str, str]) -> list[str]:
    """Tables and sentences that are not those of the kept values, and numbers in sentences that no claim has."""
    found = []
    for page, text in texts.items():
        for block in BLOCK.finditer(text):
            if block[3].strip() != made(block[2]):
                found.append(f"{page}: the table {block[2]} is not that of the kept values")
    for claim in claims():
        if claim.text not in squeezed(texts[claim.page]):
            found.append(f"{claim.page}: not there: {claim.text}")
    for page in ("README.md", "docs/evidence.md"):
        text = squeezed(BLOCK.sub("", texts[page]))
        if page == "README.md":
            text = text[text.index("## What moves the number") : text.index("## Is it for you?")]
        for claim in claims():
            text = text.replace(claim.text, "")
        found += [f"{page}: no claim has {number}" for number in NUMBER.findall(text) if number != plain(MARGIN, 2)]
    return found
