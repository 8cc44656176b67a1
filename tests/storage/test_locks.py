from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from rerank.errors import UserError
from rerank.storage.files import atomic_folder, atomic_write
from rerank.storage.locks import clear_within, held

HOLD = """
import os, sys
from rerank.storage.locks import held
with held(sys.argv[1], "rerank train"):
    print("held", flush=True)
    sys.stdin.read()
"""
FORK = """
    child = os.fork()
    if child == 0:
        sys.exit(3)  # through the block of the parent
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
"""


@contextmanager
def holder(path: Path, script: str = HOLD) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a path, until its input ends."""
    words = [sys.executable, "-c", script, str(path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def hold_in_a_thread(path: Path) -> None:
    def hold() -> None:
        with held(path, "thread"):
            pass

    with ThreadPoolExecutor(1) as pool:
        pool.submit(hold).result()


def test_who_comes_second_is_told_who_is_there(tmp_path: Path) -> None:
    with holder(tmp_path / "run") as process:
        who = rf"run: in use by process {process.pid} on {socket.gethostname()} since \d\d:\d\d \(rerank train\); wait"
        for _ in range(2), pytest.raises(UserError, match=who), held(tmp_path / "run", "test"):
            pass
        with held(tmp_path / "run.2", "test"), held(tmp_path / "ru", "test"):
            pass
        process.communicate("")
    with held(tmp_path / "run", "test"):
        assert os.listdir(tmp_path) == [".run.lock"]
    assert os.listdir(tmp_path) == []


def test_two_names_of_a_folder_are_one(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "run")
    with holder(tmp_path / "far" / "run"), pytest.raises(UserError, match="in use"), held(tmp_path / "link", "test"):
        pass


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path / "run") as process:
        process.kill()
        process.wait()
        assert (tmp_path / ".run.lock").exists()
        with held(tmp_path / "run", "x"), pytest.raises(UserError, match=rf"process {os.getpid()} on .* \(x\); wait"):
            hold_in_a_thread(tmp_path / "run")
    assert os.listdir(tmp_path) == []


def test_waiting_is_said_and_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with holder(tmp_path / "index") as process, caplog.at_level(logging.INFO, "rerank"):
        threading.Timer(0.3, process.kill).start()
        start = time.monotonic()
        with held(tmp_path / "index", "test", wait=True):
            assert time.monotonic() - start > 0.2
    assert len(caplog.messages) == 1
    assert f"index: waiting for process {process.pid} on" in caplog.text


def test_a_thread_may_hold_again_what_it_holds_and_others_may_not(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with held(path, "outer", wait=True):
        with held(path, "inner", wait=True), held(path, "inner"):
            pass  # which does not let go
        with pytest.raises(UserError, match=f"process {os.getpid()} on"):
            hold_in_a_thread(path)
    hold_in_a_thread(path)


def test_a_forked_child_does_not_hold_what_its_parent_holds(tmp_path: Path) -> None:
    with held(tmp_path / "run", "parent"):
        child = os.fork()
        if child == 0:
            try:
                with held(tmp_path / "run", "child"):
                    os._exit(1)
            except UserError:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(UserError, match="in use"):
            hold_in_a_thread(tmp_path / "run")


def test_a_forked_child_that_leaves_the_block_leaves_the_lock(tmp_path: Path) -> None:
    with holder(tmp_path / "run", HOLD.replace("\n    print", f"{FORK}    print")) as process:
        with pytest.raises(UserError, match=f"in use by process {process.pid}"), held(tmp_path / "run", "test"):
            pass
        process.communicate("")
    assert os.listdir(tmp_path) == []


COUNT = """
import sys
from pathlib import Path
from rerank.storage.locks import held
path = Path(sys.argv[1])
for _ in range(60):
    with held(path, "count", wait=True):
        count = int(path.read_text())
        path.write_text(str(count + 1))
"""


def test_no_two_ever_hold_although_the_lock_file_comes_and_goes(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", COUNT, str(path)]) for _ in range(4)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4
    assert path.read_text() == "240"
    assert os.listdir(tmp_path) == ["count"]


KILLED = """
import os, signal, sys
from rerank.storage.files import atomic_folder
from rerank.storage.locks import held
with held(sys.argv[1], "test"), atomic_folder(sys.argv[1], replace=True) as folder:
    (folder / "a").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_killed_writers_left_is_cleared_away(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "run")], timeout=60).returncode == -9
    assert sum(name.endswith(".tmp") for name in os.listdir(tmp_path)) == 1
    others = [".run.2.0123abcd.tmp", ".run.0123abcd.tmp.gz", ".run.mine.tmp", ".runs.0123abcd.tmp", "run.0123abcd.tmp"]
    for name in others:
        (tmp_path / name).touch()
    with held(tmp_path / "run", "test"):
        assert sorted(os.listdir(tmp_path)) == sorted([".run.lock", *others])


def test_what_a_killed_writer_left_deep_in_a_folder_is_cleared_away_with_its_lock(tmp_path: Path) -> None:
    inner = tmp_path / "run" / "lists" / "test"
    inner.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", KILLED, str(inner)], timeout=60)
    assert len(os.listdir(inner.parent)) == 3
    clear_within(tmp_path / "run")
    assert len(os.listdir(inner.parent)) == 3
    clear_within(tmp_path / "run", deep=True)
    assert os.listdir(inner.parent) == ["test"]
    for name in (".test.rerank-old", ".git.old"):
        (inner.parent / name).mkdir()
    clear_within(tmp_path / "run", deep=True)
    assert sorted(os.listdir(inner.parent)) == [".git.old", "test"], "what is ours"


def test_a_folder_that_was_about_to_be_replaced_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
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
    with caplog.at_level(logging.WARNING, "rerank"), held(path, "test"):
        assert os.listdir(path) == ["first"]
    assert "run: put back" in caplog.text
    assert os.listdir(tmp_path) == ["run"]
    (tmp_path / ".run.rerank-old").mkdir()
    with held(path, "test"):
        assert os.listdir(path) == ["first"]
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize(
    ("name", "why"),
    [("file/deeper/run", "as .*/file is a file"), ("x" * 300, "name too long"), ("/sys/run", "check permissions")],
)
@pytest.mark.parametrize("way", [atomic_write, atomic_folder, partial(held, doing="test")])
def test_what_cannot_be_written_is_said_in_a_line(tmp_path: Path, name: str, why: str, way: Callable) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=f"cannot be written.*{why}") as caught, way(tmp_path / name):
        pass
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["file"]
