"""Read plain or compressed files; write files and folders, whole or not at all, by one process at a time."""

from __future__ import annotations

import functools
import glob
import hashlib
import io
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from rerank.errors import NotFoundError, UserError, one_line
from rerank.progress import log

COMPRESSED = (".gz", ".zst", ".bz2")
CODECS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
"""Codec of a file that begins with these bytes."""


@contextmanager
def open_binary(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed if its first bytes say that it is compressed.

    Raises:
        UserError: no such file, or one that cannot be decompressed.
    """
    import pyarrow as pa

    if not os.path.isfile(path):
        raise NotFoundError(f"{path}: no such file")
    try:
        with open(path, "rb") as file:
            start = file.read(4)
        codec = next((codec for mark, codec in CODECS.items() if start.startswith(mark)), None)
        with io.BufferedReader(pa.input_stream(path, compression=codec)) as file:
            yield file
    except OSError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: cannot be decompressed ({error}); is it cut short?") from error


def read_text(path: str | Path) -> str:
    """Read a UTF-8 file, plain or compressed, without a byte-order mark."""
    return "".join(_decoded(path))


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield the number, from 1, and the text of each line that is not blank, without its end."""
    for number, line in enumerate(_decoded(path), 1):
        if line.strip():
            yield number, line.rstrip("\r\n")


def _decoded(path: str | Path) -> Iterator[str]:
    """Yield lines with their ends; refuse encodings other than UTF-8 with their line."""
    with open_binary(path) as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode("utf-8" if number > 1 else "utf-8-sig")
            except UnicodeDecodeError as error:
                wrong = f"byte {error.object[error.start]:#x} is not UTF-8"
                raise UserError(f"{path}:{number}: {wrong}; save the file as UTF-8") from error


def plain_name(path: Path) -> Path:
    """Return the name that a file has when it is not compressed."""
    return path.with_suffix("") if path.suffix in COMPRESSED else path


say_once = functools.cache(log.info)
"""Log a message once in this process."""

warn_once = functools.cache(log.warning)
"""Log a warning once in this process."""


def digest(*parts: str | bytes | Path) -> str:
    """Return 16 hex digits of the SHA-256 of strings, bytes and the contents of files, in this order."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
        else:
            data = part.encode() if isinstance(part, str) else part
            total.update(len(data).to_bytes(8, "little"))
            total.update(data)
    return total.hexdigest()[:16]


def file_state(path: Path) -> str:
    """Return a digest of a file's path, size and modification time, which changes with the file."""
    state = path.stat()
    return digest(f"{path.resolve()} {state.st_size} {state.st_mtime_ns}")


def cache_folder() -> Path:
    """Return the folder of indexes and parsed files: ``$RERANK_HOME``, or ``~/.cache/rerank``."""
    return Path(os.environ.get("RERANK_HOME") or "~/.cache/rerank").expanduser()


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, whole or not at all."""
    with atomic_write(path) as file:
        file.write(json.dumps(content, indent=2) + "\n")


def read_json(path: Path, optional: bool = False) -> dict[str, Any]:
    """Read a JSON object; an optional file that is missing is an empty one."""
    if optional and not path.exists():
        return {}
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error)}); copy or make it again") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object; copy or make it again")
    return content


def check_apart(output: str | Path, **inputs: Any) -> None:
    """Refuse to overwrite an input: a file, a folder, or a collection with one of these behind its colon."""
    target = Path(os.path.realpath(output))
    for name, given in inputs.items():
        if not isinstance(given, str | Path):
            continue
        behind = str(given).partition(":")[2]  # DIR/SPLIT of beir:DIR/SPLIT
        place = next(filter(os.path.exists, (given, behind, os.path.dirname(behind))), None)
        source = None if place is None else Path(os.path.realpath(place))
        if source and (target in source.parents or (target.is_file() and source in (target, *target.parents))):
            raise UserError(f"{output}: would overwrite what --{name} {given} reads; name another file")


OLD = ".rerank-old"
"""End of the name that a folder has while another takes its place."""


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Remove what killed writers left in a folder; a folder that one of them was replacing is put back.

    Args:
        folder: where they wrote.
        name: pattern of the names that they wrote. The caller has their lock.
    """
    for old in folder.glob(f".{name}{OLD}"):
        target = folder / old.name.removeprefix(".").removesuffix(OLD)
        if os.path.lexists(target):
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(old, target)
            log.warning("%s: put back, as the process that replaced it was killed", target)
    for path in folder.glob(f".{name}.{'[0-9a-f]' * 8}.tmp"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    """Return a random name beside a path; machines that share a disk may have processes with the same id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _flush(path: Path) -> None:
    """Wait until a file's content, or a folder's names, are on the disk: a rename may outlive them in a power cut."""
    number = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems cannot flush a folder
            os.fsync(number)
    finally:
        os.close(number)


def flush_folder(path: Path) -> None:
    """Wait until all of a folder is on the disk, before it is renamed."""
    for inside in [*path.rglob("*"), path]:
        _flush(inside)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a name beside a file's place to write to; it takes the place at the end, whole or not at all.

    The file behind a symbolic link is replaced, not the link. Pipes and devices are refused.
    """
    if os.path.abspath(path).startswith(("/dev/", "/proc/")) or (os.path.exists(path) and not os.path.isfile(path)):
        raise UserError(f"{path}: is a folder, pipe or device; name a file")
    path = Path(os.path.realpath(path))
    temporary = _temporary(path)
    temporary.touch(exist_ok=False)  # so that the umask applies, and errors come before the work
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[str]]:
    """Write a text file, whole or not at all."""
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file


@contextmanager
def atomic_folder(path: str | Path, replace: bool = False) -> Iterator[Path]:
    """Fill a folder beside its place and rename it there at the end; delete it if the block raises.

    Args:
        path: the folder, or a symbolic link to it.
        replace: replace an existing folder. It is moved aside, then deleted; if the process is killed in between, the
            next `remove_leftovers` puts it back.
    """
    path = Path(os.path.realpath(path))
    old = path.with_name(f".{path.name}{OLD}")
    if not replace:
        _refuse_existing(path)
    temporary = _temporary(path)
    temporary.mkdir()
    try:
        yield temporary
        flush_folder(temporary)
        if replace and path.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(path, old)
        _refuse_existing(path)  # a rename would replace an empty folder
        os.rename(temporary, path)
        _flush(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise UserError(f"{path}: exists already; remove it or choose another name")


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
