"""A directive that prints the help of every command, and of every key of a configuration."""

from __future__ import annotations

import contextlib
import io
import os

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from rerank.commands.cli import COMMANDS, main


def help_of(*words: str) -> str:
    """Return what ``rerank WORDS`` prints."""
    os.environ["COLUMNS"] = "90"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main(list(words))
    return printed.getvalue()


class Commands(SphinxDirective):
    """``.. commands::`` for all, or ``.. commands:: train --help all`` for what one prints."""

    optional_arguments = 9

    def run(self) -> list[nodes.Node]:
        """Print them."""
        lines = []
        for words in [self.arguments] if self.arguments else [[name, "--help"] for name in COMMANDS]:
            if not self.arguments:
                lines += [f"rerank {words[0]}", "-" * (len(words[0]) + 7), ""]
            lines += ["::", "", *(f"    {line}" for line in help_of(*words).splitlines()), ""]
        return self.parse_text_to_nodes(StringList(lines, "commands"), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
