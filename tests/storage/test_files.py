from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import pytest

from rerank.errors import UserError
from rerank.storage.files import atomic_folder, atomic_write, check_apart, read_lines, read_text
from tests.builders import PACK, write_packed

TEXT = "eins\nzwei €\n"


def test_plain_and_compressed_files_read_alike(tmp_path: Path) -> None:
    for suffix in ("", *PACK):
        path = write_packed(tmp_path / f"a{suffix}", TEXT)
        assert read_text(path) == TEXT
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


def test_other_encodings_are_refused_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "latin1").write_bytes(b"one\n\nna\xefve\n")
    with pytest.raises(UserError, match="latin1:3: byte 0xef is not UTF-8"):
        list(read_lines(tmp_path / "latin1"))


WHOLE = gzip.compress(random.Random(1).randbytes(1000).hex().encode())


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(WHOLE[:-9], id="cut short"),
        pytest.param(WHOLE[:30] + b"zzzz" + WHOLE[34:], id="overwritten"),
    ],
)
def test_read_lines_names_a_damaged_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "damaged.gz"
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"damaged\.gz: cannot be decompressed"):
        list(read_lines(path))


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


def test_atomic_writes_replace_the_target_of_a_link(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", [".", "/dev/stdout", "/dev/null", "pipe"])
def test_atomic_write_refuses_folders_pipes_and_devices(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is a folder, pipe or device; name a file"), atomic_write(tmp_path / name):
        pass
    assert os.listdir(tmp_path) == ["pipe"]


def test_check_apart_refuses_to_overwrite_inputs_also_through_links_and_folders(tmp_path: Path) -> None:
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
