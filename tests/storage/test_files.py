from __future__ import annotations

import gzip
import logging
import os
import random
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rerank.errors import UserError
from rerank.storage.files import (
    atomic_folder,
    atomic_write,
    check_apart,
    digest,
    open_binary,
    read_lines,
    read_text,
)
from tests.builders import PACK, write_packed

TEXT = "eins\nzwei €\n"


def test_plain_and_compressed_files_read_alike(tmp_path: Path) -> None:
    for suffix in ("", *PACK):
        path = write_packed(tmp_path / f"a{suffix}", TEXT)
        assert open_binary(path).read() == TEXT.encode()
        assert list(read_lines(path)) == [(1, "eins"), (2, "zwei €")]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("\ufeffa\tb \r\n\r\n \t\r\nc", [(1, "a\tb "), (4, "c")]),  # as Windows writes it
        ("a\u2028b\x0bc\x85d\n", [(1, "a\u2028b\x0bc\x85d")]),
    ],
)
def test_lines_end_with_line_feeds_alone(tmp_path: Path, text: str, lines: list[tuple[int, str]]) -> None:
    (tmp_path / "x.txt").write_bytes(text.encode())
    assert list(read_lines(tmp_path / "x.txt")) == lines


def test_undecodable_lines_are_counted_and_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "latin1.txt"
    path.write_bytes(b"caf\xe9\ngood\nna\xefve\n\xef\xbf\xbd is valid\n")
    with caplog.at_level(logging.WARNING, "rerank"):
        for _ in range(2):
            assert [line for _, line in read_lines(path)] == ["caf�", "good", "na�ve", "� is valid"]
    assert [record.message.split(": ")[1].split()[0] for record in caplog.records] == ["3"]


def test_read_text_names_the_line_of_another_encoding(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.gz", "\ufefföne\ntwo\n")
    assert read_text(path) == "öne\ntwo\n"
    (tmp_path / "latin1").write_bytes(b"one\nna\xefve\n")
    with pytest.raises(UserError, match="latin1:2: byte 0xef is not UTF-8"):
        read_text(tmp_path / "latin1")
    (tmp_path / "utf16").write_bytes("one".encode("utf-16"))
    with pytest.raises(UserError, match="is UTF-16; expected text in UTF-8"):
        read_text(tmp_path / "utf16")


WHOLE = gzip.compress(random.Random(1).randbytes(1000).hex().encode())


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(WHOLE[:-9], id="cut short"),
        pytest.param(WHOLE[:30] + b"zzzz" + WHOLE[34:], id="overwritten"),
    ],
)
def test_a_damaged_compressed_file_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "damaged.gz"
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"damaged\.gz: cannot be decompressed"):
        list(read_lines(path))


def test_digest_tells_parts_and_contents_apart(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("same")
    two.write_text("same")
    assert digest(one) == digest(two)
    two.write_text("other")
    assert len({digest(one), digest(two), digest("same"), digest("sa", "me"), digest("sam", "e"), digest()}) == 6
    assert digest("a", b"b") == digest(b"a", "b")
    assert len(digest("a")) == len(digest()) == 16


def test_atomic_write_is_whole_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    with atomic_write(path) as file:
        file.write("first")
        assert not path.exists()
    with pytest.raises(KeyError), atomic_write(path) as file:
        file.write("second")
        raise KeyError
    assert path.read_text() == "first"
    assert os.listdir(path.parent) == ["file.txt"]


def test_atomic_folder_is_whole_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder"
    with pytest.raises(KeyError), atomic_folder(path) as folder:
        (folder / "a").touch()
        raise KeyError
    assert os.listdir(path.parent) == []
    with atomic_folder(path) as folder:
        (folder / "a").touch()
        assert not path.exists()
    with pytest.raises(UserError, match="exists already"), atomic_folder(path):
        raise AssertionError("refused after the work")
    with atomic_folder(path, replace=True) as folder:
        (folder / "b").touch()
    assert os.listdir(path) == ["b"]
    assert os.listdir(path.parent) == ["folder"]


def test_atomic_folder_keeps_the_old_folder_until_the_new_one_can_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed at a rename leaves the old folder at its place or beside it."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("old")
    present: list[bool] = []

    def rename(source: str | Path, target: str | Path) -> None:
        present.append(any(path.read_text() == "old" for path in tmp_path.rglob("weights")))
        real(source, target)

    real = os.rename
    monkeypatch.setattr(os, "rename", rename)
    with atomic_folder(tmp_path / "model", replace=True) as temporary:
        (temporary / "weights").write_text("new")
    assert present
    assert all(present)
    assert (tmp_path / "model" / "weights").read_text() == "new"


def test_the_file_or_folder_behind_a_link_is_replaced(tmp_path: Path) -> None:
    far, links = tmp_path / "far", [tmp_path / "file", tmp_path / "folder"]
    far.mkdir()
    for link in links:
        link.symlink_to(f"far/{link.name}")
    for name in ("one", "two"):
        with atomic_write(links[0]) as file, atomic_folder(links[1], replace=True) as folder:
            file.write(name)
            (folder / name).touch()
        assert (far / "file").read_text() == name and os.listdir(far / "folder") == [name]
    assert all(link.is_symlink() for link in links) and sorted(os.listdir(far)) == ["file", "folder"]


def test_pipes_are_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    with atomic_write(pipe) as file:
        file.write(TEXT)
    reader.join(timeout=10)
    assert read == [TEXT]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_standard_output_is_written_to(tmp_path: Path) -> None:
    script = (
        "from rerank.storage.files import atomic_write\nwith atomic_write('/dev/stdout') as file: file.write('text')"
    )
    with (tmp_path / "out").open("wb") as out:
        before = os.fstat(out.fileno()).st_ino
        subprocess.run([sys.executable, "-c", script], check=True, stdout=out, cwd=tmp_path)
    assert (tmp_path / "out").read_text() == "text"
    assert (tmp_path / "out").stat().st_ino == before
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize(
    "appears",
    [
        pytest.param(Path.mkdir, id="empty folder"),
        pytest.param(lambda path: (path / "b").mkdir(parents=True), id="folder"),
        pytest.param(Path.touch, id="file"),
    ],
)
def test_a_folder_that_appears_meanwhile_is_neither_replaced_nor_joined(tmp_path: Path, appears) -> None:
    path = tmp_path / "folder"
    with pytest.raises(UserError, match="folder: exists already"), atomic_folder(path) as folder:
        (folder / "a").touch()
        appears(path)
    assert not (path / "a").exists()
    assert os.listdir(tmp_path) == ["folder"]


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"), atomic_write(tmp_path / "."):
        pass
    assert os.listdir(tmp_path) == []


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    """Nor by way of a link, behind a colon, or with the folder that it is in; commands are tried in tests/tasks."""
    for name in ("lists/run.trec", "beir/corpus.jsonl"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "lists" / "run.trec")
    beir = f"beir:{tmp_path}/beir/test"
    for output, inputs in {
        "link": {"run": tmp_path / "lists" / "run.trec"},
        "lists": {"run": tmp_path / "lists" / "run.trec"},
        "lists/run.trec": {"lists": tmp_path / "lists"},
        "beir/corpus.jsonl": {"qrels": beir},
    }.items():
        with pytest.raises(UserError, match=f"--{next(iter(inputs))}"):
            check_apart(tmp_path / output, **inputs)
    check_apart(tmp_path / "lists" / "new.trec", lists=tmp_path / "lists", qrels="beir/scifact", html=None)
    check_apart(tmp_path / "lists", collection=f"files:{tmp_path}", qrels={"q": {}})
    check_apart(tmp_path / "beir" / "new.json", qrels=beir)


def test_of_many_writers_of_a_folder_one_succeeds(tmp_path: Path) -> None:
    """All rename at once, past the check that the name is free."""
    path, together = tmp_path / "folder", threading.Barrier(8)

    def write(number: int) -> None:
        with atomic_folder(path) as folder:
            (folder / str(number)).touch()
            together.wait()

    with ThreadPoolExecutor(8) as pool:
        errors = [future.exception() for future in [pool.submit(write, number) for number in range(8)]]
    assert [str(error).partition("folder: ")[2][:14] for error in errors if error] == ["exists already"] * 7
    assert os.listdir(path) == [str(errors.index(None))]
    assert os.listdir(tmp_path) == ["folder"]
