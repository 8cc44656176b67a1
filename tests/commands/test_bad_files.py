"""Files, terminals and disks that are not what they should be: one line each, and in time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from rerank.collections.jvm import _heap
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.storage import arrow
from rerank.storage.arrow import ArrowWriter, read_arrow
from tests.builders import write_collection


def test_a_heap_too_small_for_lucene_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 8 MB Java collected garbage for as long as anybody waited."""
    for heap in ("8m", "63M", "1000k", "1"):
        monkeypatch.setenv("RERANK_JVM_HEAP", heap)
        with pytest.raises(UserError, match="Lucene needs 64m"):
            _heap()
    for heap in ("64m", "65536K", "1g", str(1 << 30)):
        monkeypatch.setenv("RERANK_JVM_HEAP", heap)
        assert _heap() == heap


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


def test_texts_of_more_than_two_gibibytes_become_several_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "SIGNS", 100)
    texts = [None if i % 7 == 0 else "x" * i for i in range(64)]
    with ArrowWriter(tmp_path / "texts.arrow", pa.schema([("text", pa.string()), ("n", pa.int64())])) as writer:
        writer.add({"text": texts, "n": list(range(64))})
        assert writer.rows == 64
    table = read_arrow(tmp_path / "texts.arrow")
    assert table.column("text").to_pylist() == texts
    assert table.column("n").to_pylist() == list(range(64))
    sizes = [sum(len(text or "") for text in chunk.to_pylist()) for chunk in table.column("text").chunks]
    assert all(size <= 100 for size in sizes)
