"""An option that has no use in the way that a command is called is refused, before anything is read."""

from __future__ import annotations

import pytest

from rerank.commands.cli import main

ADD = ("add", "--lists", "l", "--run", "x.trec")
EVALUATE = ("evaluate", "--qrels", "q", "--runs", "r")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*ADD, "--precision", "fp32"), "--precision: has no effect without"),
        ((*ADD, "--token-budget", "9"), "--token-budget: has no effect without"),
        ((*ADD, "--in-sample"), "--in-sample: has no effect without"),
        ((*ADD, "--name", "x"), "--name: has no effect on a file"),
        (("add", "--lists", "l", "--drop", "c", "--precision", "bf16"), "--precision: has no effect without"),
        (("export", "--lists", "l", "--output", "o.trec", "--depth", "0"), "--depth: is for exporting a model"),
        (("export", "--lists", "l", "--output", "o.trec", "--force"), "--force: is for exporting a model"),
        (("export", "--lists", "l", "--output", "o", "--model", "m", "--column", "c"), "--column: has no effect with"),
        ((*EVALUATE, "--tests", "t-test"), "tests: has no effect without a baseline"),
        ((*EVALUATE, "--correction", "none"), "correction: has no effect without a baseline"),
        (("experiment", "--output", "o", "--base", "{}", "--methods", "{}", "--share", "0/2", "--html", "x.html"),
         "html: a share makes no report"),
    ],
)  # fmt: skip
def test_it_is_refused(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err
