from __future__ import annotations

import gzip
import logging
import lzma
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rerank.errors import UserError
from rerank.files import atomic_folder, atomic_write, digest, open_text, read_lines

TEXT = "eins\nzwei €\n"


def test_plain_and_compressed_files_read_alike(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(TEXT, encoding="utf-8")
    (tmp_path / "a.gz").write_bytes(gzip.compress(TEXT.encode()))
    (tmp_path / "a.xz").write_bytes(lzma.compress(TEXT.encode()))
    for name in ("a", "a.gz", "a.xz"):
        assert open_text(tmp_path / name).read() == TEXT
        assert list(read_lines(tmp_path / name)) == [(1, "eins"), (2, "zwei €")]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file") as caught:
        open_text(tmp_path / "nowhere.tsv")
    assert "nowhere.tsv" in str(caught.value)


def test_windows_files_read_like_others(tmp_path: Path) -> None:
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbfa\tb \r\n\r\n \t\r\nc")
    assert list(read_lines(path)) == [(1, "a\tb "), (4, "c")]


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "separators.txt"
    path.write_text("a\u2028b\x0bc\x85d\n", encoding="utf-8")
    assert list(read_lines(path)) == [(1, "a\u2028b\x0bc\x85d")]


def test_undecodable_lines_are_counted_and_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "latin1.txt"
    path.write_bytes(b"caf\xe9\ngood\nna\xefve\n\xef\xbf\xbd is valid\n")
    with caplog.at_level(logging.WARNING, "rerank"):
        for _ in range(2):
            assert [line for _, line in read_lines(path)] == ["caf�", "good", "na�ve", "� is valid"]
    assert [record.message.split(": ")[1].split()[0] for record in caplog.records] == ["2"]


@pytest.mark.parametrize(
    "cut", [lambda data: data[:-9], lambda data: data[:30] + b"zzzz" + data[34:], lambda data: TEXT.encode()]
)
def test_a_damaged_compressed_file_is_named(tmp_path: Path, cut) -> None:
    path = tmp_path / "damaged.gz"
    path.write_bytes(cut(gzip.compress(random.Random(1).randbytes(1000).hex().encode())))
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
        pass
    with atomic_folder(path, replace=True) as folder:
        (folder / "b").touch()
    assert os.listdir(path) == ["b"]
    assert os.listdir(path.parent) == ["folder"]


def test_a_killed_writer_leaves_nothing_in_place(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from rerank.files import atomic_folder, atomic_write
with atomic_folder(sys.argv[1] + "/folder") as folder, atomic_write(sys.argv[1] + "/file") as file:
    (folder / "a").touch()
    file.write("half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert all(name.startswith(".") for name in os.listdir(tmp_path))
