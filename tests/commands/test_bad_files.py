"""Files, terminals and disks that are not what they should be: one line each, and in time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rerank.commands.cli import main
from tests.builders import write_collection


@pytest.mark.slow
def test_a_terminal_of_another_encoding_gets_what_it_can_show(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q1 0 d1 1\n")
    name = "überrank\u2192\u03b1.trec"
    (tmp_path / name).write_text("q1 Q0 d1 1 1.0 x\n")
    words = ["evaluate", "--qrels", str(tmp_path / "qrels"), "--runs", str(tmp_path / name)]
    command, environment = [sys.executable, "-m", "rerank"], os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([*command, *words], capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert b"\xfcberrank\\u2192\\u03b1" in done.stdout


def test_names_that_are_too_long_and_homes_that_are_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = write_collection(tmp_path)
    long = tmp_path / ("x" * 300)
    (tmp_path / "judged.txt").write_text("q1 0 d1 1\n")
    (tmp_path / "run.trec").write_text("q1 Q0 d1 1 1.0 x\n")
    for words in (
        ["evaluate", f"--qrels={long}", "--runs", str(tmp_path / "run.trec")],
        ["evaluate", f"--qrels={tmp_path / 'judged.txt'}", "--runs", str(tmp_path / "run.trec"), f"--json={long}"],
        ["retrieve", "--collection", collection, "--output", str(long)],
        ["lists", str(long)],
        ["train", "--config", str(long)],
    ):
        assert main(words) == 2, words
        said = capsys.readouterr().err
        assert said.count("\n") == 1, said
        assert "x" * 300 in said
    monkeypatch.delenv("RERANK_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # nobody has a number
    assert main(["retrieve", "--collection", collection, "--output", str(tmp_path / "out")]) == 2
    assert "set RERANK_HOME" in capsys.readouterr().err


def test_a_disk_that_takes_nothing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read-only file systems cannot be mounted here, so the one call that finds out says what they say."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "out"))

    (tmp_path / "judged.txt").write_text("q1 0 d1 1\n")
    (tmp_path / "run.trec").write_text("q1 Q0 d1 1 1.0 x\n")
    monkeypatch.setattr("pathlib.Path.touch", refuse)
    words = ["evaluate", f"--qrels={tmp_path / 'judged.txt'}", "--runs", str(tmp_path / "run.trec")]
    assert main([*words, f"--json={tmp_path / 'out' / 'x.json'}"]) == 2
    said = capsys.readouterr().err
    assert "Read-only file system" in said
    assert said.count("\n") == 1
