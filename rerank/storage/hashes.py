"""Hashes of files: remembered while a file stays the same, and sealed into files that are to show every damage."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rerank.errors import NotFoundError, UserError
from rerank.storage.files import atomic_write, cache_folder, digest

KEY = "sha256"
"""Where sealed files keep their hash: the last key of a JSON object, or a key in the metadata of an Arrow schema."""

ZEROS = "0" * 64
"""Stands for the hash while the hash is computed."""

UNSEALED = {KEY: ZEROS}
"""Metadata of the schema of an Arrow stream that is to be sealed."""

SETTLED = 2.0
"""A file this many seconds old cannot change again without a new time stamp."""

LARGE = 16 << 20
"""Hashes of files this large or larger are remembered on disk, too, under `cache_folder`."""

AGAIN = "copy the folder again or make it again"
SEALED_END = re.compile(rb'"sha256": "([0-9a-f]{64})"\n\}\n\Z')
_memory: dict[tuple[str, str], tuple[str, str]] = {}


def sha256_of(path: str | Path) -> str:
    """The SHA-256 of a file's content, in hex; an earlier one is believed while size, inode and time stamps stay."""
    return _remembered(Path(path), "content", _content_hash)


def sha256_of_files(folder: Path, files: Sequence[Path]) -> str:
    """One SHA-256 of files below a folder: of their names there and their contents, in this order.

    It is remembered as that of one file is, by the size of all, which spares reading thousands of small files.
    """

    def compute(folder: Path) -> str:
        total = hashlib.sha256()
        for file in files:
            line = f"{file.relative_to(folder).as_posix()}\0{_content_hash(file)}\n"
            total.update(line.encode(errors="surrogateescape"))
        return total.hexdigest()

    names = digest(*(os.fsencode(file.relative_to(folder)) for file in files))
    return _remembered(folder, f"files {names}", compute, files)


def hash_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of files of a folder, by their names."""
    return {name: sha256_of(folder / name) for name in names}


def check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Refuse a folder in which a file is missing, or is not what it was."""
    for name, expected in files.items():
        found = sha256_of(folder / name)
        if found != expected:
            raise _damaged(folder / name, found, expected)


def write_sealed(path: str | Path, content: Mapping[str, Any]) -> str:
    """Write a JSON object whose last key, ``sha256``, is the hash of the file's bytes, with zeros in its own place."""
    text = json.dumps({**content, KEY: ZEROS}, indent=2) + "\n"
    seal = hashlib.sha256(text.encode()).hexdigest()
    before, _, after = text.rpartition(ZEROS)
    with atomic_write(path) as file:
        file.write(before + seal + after)
    return seal


def read_sealed(path: str | Path) -> dict[str, Any]:
    """What `write_sealed` wrote, without the seal."""
    path = Path(path)
    with _cannot_be_read(path):
        data = path.read_bytes()
    if (end := SEALED_END.search(data, max(0, len(data) - 80))) is None:
        why = "it was cut short or changed, or not written by this version"
        raise UserError(f"{path}: no {KEY} of its own at the end; {why}; {AGAIN}")
    expected = end[1].decode()
    found = hashlib.sha256(data[: end.start(1)] + ZEROS.encode() + data[end.end(1) :]).hexdigest()
    if found != expected:
        raise _damaged(path, found, expected)
    content = json.loads(data)
    del content[KEY]
    return content


def seal(path: str | Path) -> str:
    """Seal an Arrow stream, in place: the writer put 64 zeros under ``sha256`` into the metadata of the schema."""
    path = Path(path)
    place, _ = _seal_of(path)
    value = _hash_with_zeros(path, place)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(value.encode())
    return value


def check_seal(path: str | Path) -> str:
    """Refuse an Arrow stream whose seal is missing or does not fit."""
    return _remembered(Path(path), "seal", _checked_seal)


def _checked_seal(path: Path) -> str:
    place, expected = _seal_of(path)
    found = _hash_with_zeros(path, place)
    if found != expected:
        raise _damaged(path, found, expected)
    return found


def _hash_with_zeros(path: Path, place: int) -> str:
    with path.open("rb") as file:
        beginning = hashlib.sha256(file.read(place) + ZEROS.encode())
        file.seek(place + len(ZEROS))
        return hashlib.file_digest(file, lambda: beginning).hexdigest()


def _seal_of(path: Path) -> tuple[int, str]:
    """Where the seal's digits are in an Arrow stream, and which they are."""
    import pyarrow as pa

    try:
        with path.open("rb") as file:
            seal = (pa.ipc.open_stream(file).schema.metadata or {}).get(KEY.encode(), b"")
            size = file.tell()  # of the schema, which is all that has been read
            file.seek(0)
            head = file.read(size)
    except (pa.ArrowException, OSError, ValueError):  # of no stream, or of a damaged schema
        seal = head = b""
    if re.fullmatch(rb"[0-9a-f]{64}", seal) and head.count(seal) == 1:
        return head.index(seal), seal.decode()
    raise UserError(f"{path}: damaged, as it does not start as a sealed Arrow file; {AGAIN}")


def _content_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamps(paths: Sequence[Path]) -> tuple[str, int, float]:
    """What tells files as they are now from files as they were; the bytes of all, and when one changed last."""
    stats = [path.stat() for path in paths]
    stamps = (f"{stat.st_size} {stat.st_ino} {stat.st_mtime_ns} {stat.st_ctime_ns}" for stat in stats)
    newest = max((max(stat.st_mtime, stat.st_ctime) for stat in stats), default=0.0)
    return digest(*stamps), sum(stat.st_size for stat in stats), newest


def _remembered(path: Path, kind: str, compute: Callable[[Path], str], files: Sequence[Path] | None = None) -> str:
    """What a function says about a path, or said about it while its files (by default, itself) were the same."""
    with _cannot_be_read(path):
        started, (stamps, size, newest) = time.time(), _stamps(files or [path])
        name = str(path.resolve())
        note = cache_folder() / "hashes" / f"{digest(kind, name)}.json" if size >= LARGE else None
        for known in (_memory.get((kind, name)), _read_note(note) if note else None):
            if known and known[0] == stamps:
                _memory[kind, name] = known
                return known[1]
        value = compute(path)
        # The stamps of a file that has just been changed may stay the same when it is changed again.
        if started - newest > SETTLED and _stamps(files or [path])[0] == stamps:
            _memory[kind, name] = stamps, value
            if note:
                with contextlib.suppress(OSError, UserError), atomic_write(note) as file:  # a cache may be read-only
                    json.dump({"path": name, "state": stamps, "sha256": value}, file)
    return value


def _read_note(path: Path) -> tuple[str, str] | None:
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        return note["state"], note["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def _cannot_be_read(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: no such file") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def _damaged(path: Path, found: str, expected: str) -> UserError:
    return UserError(f"{path}: damaged ({KEY} {found}, expected {expected}); {AGAIN}")
