"""Locks: who writes a folder writes it alone, and clears away what killed writers left."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from rerank.errors import UserError
from rerank.progress import log
from rerank.storage.files import atomic_write, cannot_be_written, is_stream, make_parent, old_beside, warn_once

NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""What file systems answer that have no locks, such as some network disks."""


class _Mine(threading.local):
    """The locks that this thread holds, by process: a forked child has its parent's memory, but not its locks."""

    def __init__(self) -> None:
        self.held: set[tuple[int, Path]] = set()


_mine = _Mine()


@contextmanager
def held(path: str | Path, doing: str, wait: bool = False) -> Iterator[None]:
    """Hold a file or folder alone, against other processes and threads; whoever holds it may hold it again.

    The lock is a file beside the path (``.NAME.lock``), so the path itself may be renamed or missing. What killed
    writers of the path left beside it is cleared away: half-written files and folders are deleted, and a folder that
    was about to be replaced is put back. Whoever writes the path has to hold it, therefore.

    What is no regular file (a pipe, ``/dev/stdout``) is not locked. On file systems without locks there is a warning
    and no lock; what is written stays whole, by its renames.

    ``doing`` says what for, such as ``rerank train``, to whoever is refused. Another holder is an error, or with
    ``wait`` is waited for, with a line in the log.
    """
    if is_stream(Path(path)):
        yield
        return
    path = Path(os.path.realpath(path))
    place = path.with_name(f".{path.name}.lock")
    key = os.getpid(), place
    if key in _mine.held:
        yield
        return
    with contextlib.ExitStack() as stack:
        with cannot_be_written(path):
            make_parent(path)
            if _acquire(place, path, doing, wait, stack):
                _clear_away(path)
                _mine.held.add(key)
                stack.callback(_mine.held.discard, key)
        yield


@contextmanager
def written(path: str | Path) -> Iterator[IO[str]]:
    """`atomic_write` where no folder is held: in whatever folder, what a killed writer left goes with the next one."""
    with held(path, "writing it", wait=True), atomic_write(path) as file:
        yield file


def tidied(path: str | Path) -> None:
    """Clear away what a writer that was killed left beside and in a finished file or folder, its lock file included.

    For commands that find their work done, and therefore do not hold the path. Where nothing may be written, or
    nothing lies there, nothing is done.
    """
    path = Path(os.path.realpath(path))
    place = path.with_name(f".{path.name}.lock")
    if place.is_file() and all(os.access(file, os.W_OK) for file in (place, place.parent)):
        with held(path, "tidying up", wait=True):
            clear_within(path, deep=True)


def clear_within(folder: Path, deep: bool = False) -> None:
    """Delete what killed writers left half-done in a folder (``deep``: and below it, with locks); for who holds it."""
    name = re.compile(r"\..+\.([0-9a-f]{8}\.tmp|rerank-old)")
    _remove(found for found in [*folder.glob("**/.*" if deep else ".*")] if name.fullmatch(found.name))
    for place in folder.glob("**/.*.lock") if deep else ():
        tidied(place.with_name(place.name[1:].removesuffix(".lock")))


def _acquire(place: Path, path: Path, doing: str, wait: bool, stack: contextlib.ExitStack) -> bool:
    """Take the lock until the stack is left; false where the file system has none."""
    numbers: list[int] = []

    def sign(number: int) -> None:
        """Say in the lock file who holds it. Nobody believes that of a dead process, since its lock is gone."""
        note = {"process": os.getpid(), "host": socket.gethostname(), "since": time.time(), "doing": doing}
        os.ftruncate(number, 0)
        os.pwrite(number, json.dumps(note).encode(), 0)
        numbers[:] = [number]

    lock = FileLock(place, on_acquired=sign)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not wait:
                advice = "wait for it, or name another folder"
                raise UserError(f"{path}: in use by {_holder(place)}; {advice}") from None
            log.info("%s: waiting for %s", path, _holder(place))
            lock.acquire()
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        warn_once(f"{path.parent}: no locks on this file system; let only one process write there")
        return False
    stack.callback(_release, lock, place, numbers[0])
    return True


def _release(lock: FileLock, place: Path, number: int) -> None:
    # Deleting the file is safe while its lock is held: whoever opened it before and gets the lock after us sees that
    # it has no name any more (filelock looks), and starts again with the file that then has the name. If somebody
    # deleted our file by hand, the name is another's; in a forked child, filelock has closed the number.
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(number), place.stat()):
            place.unlink()
    lock.release()


def _holder(place: Path) -> str:
    for _ in range(5):
        try:
            note = json.loads(place.read_text(encoding="utf-8"))
            since = datetime.fromtimestamp(note["since"])
            when = f"{since:%H:%M}" if since.date() == datetime.now().date() else f"{since:%Y-%m-%d %H:%M}"
            return f"process {note['process']} on {note['host']} since {when} ({note['doing']})"
        except (OSError, ValueError, KeyError, TypeError):
            time.sleep(0.02)  # it has the lock, and is about to sign
    return "another process"


def _clear_away(path: Path) -> None:
    old = old_beside(path)
    if old.is_dir():
        if os.path.lexists(path):
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(old, path)
            log.warning("%s: put back, as the process that was replacing it was killed", path)
    # No glob: that of `run` would match what a writer of `run.2` is about to finish.
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.tmp")
    _remove(found for found in [*path.parent.iterdir()] if name.fullmatch(found.name))


def _remove(paths: Iterable[Path]) -> None:
    for found in paths:
        if found.is_dir() and not found.is_symlink():
            shutil.rmtree(found, ignore_errors=True)
        else:
            found.unlink(missing_ok=True)
