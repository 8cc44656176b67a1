"""An exclusive lock on a file or folder, so that one process at a time writes it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from rerank.errors import UserError
from rerank.progress import log
from rerank.storage.files import remove_leftovers


@contextmanager
def exclusive_lock(path: str | Path, wait: bool = False) -> Iterator[None]:
    """Lock a file or folder against other processes and threads; a thread that has the lock may take it again.

    The lock is a file beside the path (``.NAME.lock``), so the path itself may be renamed or missing. What a killed
    writer of the path left behind is removed first.

    Args:
        path: the file or folder to write.
        wait: wait for another writer; else it is an error.

    Raises:
        UserError: another process writes the path.
    """
    path = Path(os.path.realpath(path))
    place = path.with_name(f".{path.name}.lock")
    lock = FileLock(place, is_singleton=True)
    again = lock.is_locked
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise UserError(f"{path}: in use by another process; wait for it, or name another path") from None
        log.info("%s: waiting for another process", path)
        lock.acquire()
    try:
        if not again:
            remove_leftovers(path.parent, glob.escape(path.name))
        yield
    finally:
        if lock.is_locked and not again:  # a forked child does not have its parent's lock
            place.unlink(missing_ok=True)  # before the release: whoever opened the file sees that it has no name
        lock.release()
