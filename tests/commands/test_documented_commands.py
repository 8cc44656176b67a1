"""Commands on the pages have only options that exist."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from functools import cache

from rerank.commands.cli import COMMANDS, main
from rerank.experiments.config import ExperimentConfig
from rerank.training.config import TrainConfig
from tests.conftest import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "configs").rglob("*.md")])
KEYS = {
    "train": {"config", *(field.name for field in fields(TrainConfig))},
    "experiment": {*(field.name for field in fields(ExperimentConfig))},
}
"""First parts of dotted options, which help has a line each for only in part."""


def commands(text: str) -> list[list[str]]:
    """The words of each ``rerank COMMAND …`` in blocks and between backquotes; comments are left out."""
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", " ", block).splitlines()]
    lines += [
        " ".join(code.split())
        for code in re.findall(r"`(rerank [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    ]
    found = [
        re.sub(r"\s#.*", "", line[match.start() :])
        for line in lines
        if (match := re.search(r"\brerank [a-z]+ ", line + " "))
    ]
    return [
        shlex.split(re.split(r" [|;<>] |\"\$|&& ", line)[0].replace("'", "").replace('"', ""))[1:] for line in found
    ]


WRITTEN = [
    (page.relative_to(ROOT), words)
    for page in PAGES
    if page.name != "CHANGELOG.md"
    for words in commands(page.read_text(encoding="utf-8"))
    if words[0] in COMMANDS
]


def help_of(command: str) -> str:
    """Return what ``--help`` prints, with all options."""
    from contextlib import redirect_stdout, suppress
    from io import StringIO

    with redirect_stdout(StringIO()) as printed, suppress(SystemExit):
        main([command, "--help", *(["all"] if command == "train" else [])])
    return printed.getvalue()


@cache
def options_of(command: str) -> set[str]:
    """Names of a command's options, with hyphens."""
    names = {"help", *re.findall(r"--([\w.\-]+)", help_of(command)), *KEYS.get(command, ())}
    return {name.replace("_", "-") for name in names}


def test_documented_options_exist() -> None:
    unknown = []
    for page, (command, *rest) in WRITTEN:
        for word in rest:
            if match := re.match(r"--([a-z][^=]*)", word):
                name = match[1].replace("_", "-")
                if not {name, name.partition(".")[0]} & options_of(command):
                    unknown.append(f"{page}: rerank {command} {word}")
    assert unknown == []
    assert len(WRITTEN) > 50
