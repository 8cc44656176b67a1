"""No command writes over what it reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rerank.commands.cli import main
from tests.builders import contents, make_lists, train, write_features


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make lists with a run in their folder, another run, judgments and a trained model."""
    monkeypatch.chdir(tmp_path)
    make_lists(tmp_path)
    for copy in ("x.trec", "lists/own.trec"):
        shutil.copy("lists/run.trec", copy)
    (tmp_path / "qrels").write_text("q0 0 d0 1\n")
    write_features(tmp_path / "letor" / "train.txt")
    words = "--data LetorData --data.path letor --data.validation_fraction 0.3 --model MLP --loss ListNet --epochs 1"
    train([*words.split(), "--output", "run"])
    return tmp_path


RERANK = ["rerank", "--model", "run/best", "--lists", "letor/train.txt", "--output"]
EVALUATE = ["evaluate", "--qrels", "qrels", "--runs", "x.trec"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*RERANK, "run/best/model.safetensors"], "--model"),
        ([*RERANK, "run/best/rerank.json"], "--model"),
        ([*RERANK, "letor/train.txt"], "--lists"),
        ([*EVALUATE, "--json", "qrels"], "--qrels"),
        ([*EVALUATE, "--trained-on", "lists/own.trec", "--json", "lists/own.trec"], "--trained-on"),
        ([*EVALUATE, "--baseline", "lists/own.trec", "--json", "lists/own.trec"], "--runs"),
        ([*EVALUATE, "--json", "a.csv", "--per-query", "a.csv"], "given for two outputs"),
        ([*EVALUATE, "--json", "a.csv", "--per-query", "./a.csv"], "given for two outputs"),
        ([*EVALUATE, "--html", "a.html", "--table", "a.txt", "a.txt"], "given for two outputs"),
    ],
)  # fmt: skip
def test_commands_keep_their_inputs(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    before = contents(place)
    assert main(words) == 2
    assert message in capsys.readouterr().err and contents(place) == before
