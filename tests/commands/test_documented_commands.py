"""Every command on every page has only options that there are."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from functools import cache

import pytest

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
    pytest.param(words, id=f"{page.relative_to(ROOT)}: {' '.join(words)[:60]}")
    for page in PAGES
    if page.name != "CHANGELOG.md"
    for words in commands(page.read_text(encoding="utf-8"))
    if words[0] in COMMANDS
]


@cache
def help_of(command: str) -> str:
    """What ``--help`` prints, with all options."""
    from contextlib import redirect_stdout, suppress
    from io import StringIO

    with redirect_stdout(StringIO()) as printed, suppress(SystemExit):
        main([command, "--help", *(["all"] if command == "train" else [])])
    return printed.getvalue()


@pytest.mark.parametrize("words", WRITTEN)
def test_options_are_there(words: list[str]) -> None:
    command, *rest = words
    options = [word.removeprefix("--").partition("=")[0] for word in rest if re.match(r"--[a-z]", word)]
    known = {option.replace("_", "-") for option in re.findall(r"--([\w.\-]+)", help_of(command))} | {"help"}
    known |= {key.replace("_", "-") for key in KEYS.get(command, ())}
    strange = [
        name
        for name in options
        if name.replace("_", "-") not in known and name.partition(".")[0].replace("_", "-") not in known
    ]
    assert strange == []


def test_there_are_commands() -> None:
    assert len(WRITTEN) > 150
