"""What the help of each command shows besides its options: examples, groups, and what needs no name."""

from __future__ import annotations

import tomllib
from importlib.resources import files

from rerank.commands.options import Page

_written = files("rerank.commands").joinpath("pages.toml").read_text("utf-8")
PAGES = {name: Page(**page) for name, page in tomllib.loads(_written).items()}
"""By command; ``rerank train`` has a page of its own."""
