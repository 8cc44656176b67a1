"""Words that read as translated stay out of every page, and user pages are tables of numbers least of all."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT

PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
]
FEW_TABLES = ["README.md", *(f"docs/{name}.md" for name in ("index", "start", "troubleshooting", "training", "losses"))]
FEW_TABLES += [f"docs/{name}.md" for name in ("from-sentence-transformers", "experiments", "lists", "scale", "auto")]
FEW_TABLES += [f"docs/{name}.md" for name in ("python", "compare", "configuration", "decoders", "evaluation")]
FEW_TABLES += [f"docs/{name}.md" for name in ("recipes", "relaxations", "collections", "places", "identity")]
"""User pages; what was measured at length is in studies and internals."""

KEPT_OUT = {
    r"\bbeside\b": "next to, compared with",
    r"\btold\b": "name what happens",
    r"\btrainings\b": "training runs",
    r"\b(is|are|was|were) refused\b": "raises an error",
    r"\bfound\b": "retrieved, detected",
    r"\bkept\b": "saved, held out",
    r"\bat hand\b": "available",
    r"\bof ours\b": "our",
    r"\bprocessor's seconds\b": "CPU seconds",
    r"\bthe most that\b": "peak",
    r"\bteach(es)? (something|nothing)\b": "has a gradient",
    r"\bgoes on\b": "resumes",
    r"\broom\b": "package",
    r"\bmend\b": "fix",
    r"\bshall\b": "will, should",
    r"\byou say\b|\bsay --": "give",
}


def prose(page: str) -> str:
    """A page without code, generated tables, and headings, which others link to."""
    text = re.sub(r"<!-- table: .*?<!-- end -->", " ", (ROOT / page).read_text(), flags=re.DOTALL)
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", " ", text, flags=re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("page", PAGES)
def test_words_stay_out(page: str) -> None:
    there = {word: found for word in KEPT_OUT if (found := re.findall(f".*{word}.*", prose(page)))}
    assert there == {}, {word: KEPT_OUT[word] for word in there}


@pytest.mark.parametrize("page", FEW_TABLES)
def test_tables_of_numbers_are_few(page: str) -> None:
    """One at most on a page; a table of numbers has a digit in most of its cells after the first column."""
    tables = re.findall(r"(?:^\|.*\n)+", prose(page) + "\n", re.MULTILINE)
    cells = [[cell for row in table.splitlines()[2:] for cell in row.strip("|").split("|")[1:]] for table in tables]
    assert sum(sum(bool(re.search(r"\d", cell)) for cell in table) > len(table) / 2 for table in cells) <= 2


def test_lines_fit() -> None:
    """Outside tables and code."""
    for page in FEW_TABLES:
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
        long = [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")]
        assert long == [], page
