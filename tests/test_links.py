"""Links between pages, also of files outside the site such as the README."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.conftest import ROOT

PAGES = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "scripts/*.md", "configs/**/*.md") for path in ROOT.glob(pattern)
)


@cache
def without_code(path: Path) -> str:
    return re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)


@cache
def anchors(path: Path) -> set[str]:
    """Names of a page's headings, as GitHub and the site make them."""
    heads = re.findall(r"^#+ (.*)$", without_code(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower().replace("`", "")).replace(" ", "-") for head in heads}


def test_links_have_targets() -> None:
    dead = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", without_code(page))):
            if target.startswith(("http", "mailto:")):
                continue
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
                dead.append(f"{page.relative_to(ROOT)}: {target}")
    assert dead == []
