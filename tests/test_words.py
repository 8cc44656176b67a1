"""Words that read as translated stay out of the pages that users read first; a page that is rewritten joins."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT

PAGES = [
    "README.md",
    *(f"docs/{name}.md" for name in ("index", "start", "from-sentence-transformers", "troubleshooting")),
]
PAGES += [f"docs/{name}.md" for name in ("training", "losses", "experiments")]
PAGES += [f"docs/reference/{name}.md" for name in ("index", "environment", "glossary")]

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
    """A page without code and headings, which others link to."""
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", " ", (ROOT / page).read_text(), flags=re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("page", PAGES)
def test_words_stay_out(page: str) -> None:
    there = {word: found for word in KEPT_OUT if (found := re.findall(f".*{word}.*", prose(page)))}
    assert there == {}, {word: KEPT_OUT[word] for word in there}


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_numbers_are_few(page: str) -> None:
    """One at most on a page; a table of numbers has a digit in most of its cells after the first column."""
    tables = re.findall(r"(?:^\|.*\n)+", prose(page) + "\n", re.MULTILINE)
    cells = [[cell for row in table.splitlines()[2:] for cell in row.strip("|").split("|")[1:]] for table in tables]
    assert sum(sum(bool(re.search(r"\d", cell)) for cell in table) > len(table) / 2 for table in cells) <= 2


def test_lines_fit() -> None:
    """Outside tables and code."""
    for page in PAGES:
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
        long = [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")]
        assert long == [], page
