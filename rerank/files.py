"""Reading and writing files: compressed or plain, and never left half-written."""

from __future__ import annotations

import codecs
import functools
import gzip
import hashlib
import io
import logging
import lzma
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rerank.errors import UserError


def open_binary(path: str | Path) -> IO[bytes]:
    """Open a file for reading, decompressed on the way where its name ends in ``.gz`` or ``.xz``."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.suffix == ".xz":
        return lzma.open(path, "rb")
    return path.open("rb")


def open_text(path: str | Path) -> IO[str]:
    """Open a text file (``.gz``, ``.xz`` or plain) as UTF-8; undecodable bytes become U+FFFD, for the reader to see."""
    return io.TextIOWrapper(open_binary(path), encoding="utf-8", errors="replace")


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file (``.gz``, ``.xz`` or plain) with their numbers from 1, without their ends.

    Lines end with LF or CRLF; a byte-order mark is dropped and blank lines are left out. Bytes that are not UTF-8
    become U+FFFD; the lines that hold some are counted and warned of, once a file.
    """
    undecodable = 0
    with open_binary(path) as file:
        try:
            for number, raw in enumerate(file, 1):
                raw = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
                try:
                    line = raw.decode()
                except UnicodeDecodeError:
                    line = raw.decode(errors="replace")
                    undecodable += 1
                if line and not line.isspace():
                    yield number, line.rstrip("\r\n")
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
            raise UserError(f"{path}: cannot be decompressed ({error}); is it cut short?") from error
    if undecodable:
        warn_once(f"{path}: {undecodable} lines hold bytes that are not UTF-8; these became U+FFFD")


@functools.cache
def warn_once(message: str) -> None:
    """Log a warning, the first time that it comes up in this process."""
    logging.getLogger("rerank").warning(message)


def digest(*parts: str | bytes | Path) -> str:
    """Hex digest (16 characters of SHA-256) of strings, bytes and the contents of files, in this order."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
        else:
            data = part.encode() if isinstance(part, str) else part
            total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:16]


def cache_folder() -> Path:
    """Where indexes and the like are kept: ``$RERANK_HOME``, or ``~/.cache/rerank``."""
    return Path(os.environ.get("RERANK_HOME") or "~/.cache/rerank").expanduser()


def _temporary_beside(path: Path) -> str:
    return f".{path.name}.{os.getpid()}.tmp"


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """A name beside a file's place to write to; what is there at the end takes the place, whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / _temporary_beside(path)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[str]]:
    """Write a text file beside its place and rename it there at the end: readers see all of it or nothing."""
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file


@contextmanager
def atomic_folder(path: str | Path, replace: bool = False) -> Iterator[Path]:
    """Fill a folder beside its place and rename it there at the end.

    Args:
        path: where the folder shall be.
        replace: whether a folder that is there already gives way (it is moved aside, then deleted).

    Yields:
        The temporary folder to fill; it is deleted when the block raises.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not replace:
        raise UserError(f"{path}: exists already; remove it or choose another name")
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    temporary.chmod(0o755)
    try:
        yield temporary
        old = path.parent / f".{path.name}.old"
        shutil.rmtree(old, ignore_errors=True)
        if path.exists():
            os.rename(path, old)
        os.rename(temporary, path)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
