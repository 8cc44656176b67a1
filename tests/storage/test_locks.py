"""The exclusive lock: other processes, threads and forked children wait or are refused; leftovers are removed."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from rerank.errors import UserError
from rerank.storage.files import atomic_folder, exclusive_lock, remove_leftovers

HOLD = """
import os, sys
from rerank.storage.files import exclusive_lock
with exclusive_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(path: Path, script: str = HOLD) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock of a path, until its input ends."""
    words = [sys.executable, "-c", script, str(path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def lock_in_a_thread(path: Path) -> None:
    def lock() -> None:
        with exclusive_lock(path):
            pass

    with ThreadPoolExecutor(1) as pool:
        pool.submit(lock).result()


@pytest.mark.slow
def test_lock_refuses_another_process_until_it_ends(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with holder(tmp_path / "run") as process:
        for name in ("run", "link"):
            with pytest.raises(UserError, match="in use by another process"), exclusive_lock(tmp_path / name):
                pass
        with exclusive_lock(tmp_path / "run.2"), exclusive_lock(tmp_path / "ru"):
            pass
        process.kill()
        process.wait()
        assert (tmp_path / ".run.lock").exists()
    with exclusive_lock(tmp_path / "run"):
        pass
    assert os.listdir(tmp_path) == ["link"]


def test_lock_is_reentrant_in_a_thread_and_refuses_others(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with exclusive_lock(path, wait=True):
        with exclusive_lock(path, wait=True), exclusive_lock(path):
            pass  # which does not let go
        assert os.listdir(tmp_path) == [".run.lock"]
        with pytest.raises(UserError, match="in use"):
            lock_in_a_thread(path)
    lock_in_a_thread(path)
    assert os.listdir(tmp_path) == []


def test_forked_child_does_not_have_the_lock_of_its_parent(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "run"):
        child = os.fork()
        if child == 0:
            try:
                with exclusive_lock(tmp_path / "run"):
                    os._exit(1)
            except UserError:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(UserError, match="in use"):
            lock_in_a_thread(tmp_path / "run")


COUNT = """
import sys
from pathlib import Path
from rerank.storage.files import exclusive_lock
path = Path(sys.argv[1])
for _ in range(60):
    with exclusive_lock(path, wait=True):
        count = int(path.read_text())
        path.write_text(str(count + 1))
"""


@pytest.mark.slow
def test_lock_excludes_although_its_file_comes_and_goes(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", COUNT, str(path)]) for _ in range(4)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4
    assert path.read_text() == "240"
    assert os.listdir(tmp_path) == ["count"]


def test_lock_removes_what_a_killed_writer_of_the_path_left(tmp_path: Path) -> None:
    (tmp_path / ".run.0123abcd.tmp").mkdir()
    others = [".run.2.0123abcd.tmp", ".run.0123abcd.tmp.gz", ".run.mine.tmp", ".runs.0123abcd.tmp", "run.0123abcd.tmp"]
    for name in others:
        (tmp_path / name).touch()
    with exclusive_lock(tmp_path / "run"):
        assert sorted(os.listdir(tmp_path)) == sorted([".run.lock", *others])
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([".run.0123abcd.tmp.gz", ".run.mine.tmp", "run.0123abcd.tmp"])


@pytest.mark.slow
def test_lock_puts_back_a_folder_that_was_being_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run"
    with atomic_folder(path) as folder:
        (folder / "first").touch()
    script = """
import os, signal, sys
from rerank.storage.files import atomic_folder
rename = os.rename
def rename_and_die(*names):
    rename(*names)
    os.kill(os.getpid(), signal.SIGKILL)
os.rename = rename_and_die
with atomic_folder(sys.argv[1], replace=True) as folder:
    (folder / "second").touch()
"""
    assert subprocess.run([sys.executable, "-c", script, str(path)], timeout=60).returncode == -9
    assert not path.exists()
    with caplog.at_level(logging.WARNING, "rerank"), exclusive_lock(path):
        assert os.listdir(path) == ["first"]
    assert "run: put back" in caplog.text
    (tmp_path / ".run.rerank-old").mkdir()
    with exclusive_lock(path):
        assert os.listdir(path) == ["first"]
    assert os.listdir(tmp_path) == ["run"]
