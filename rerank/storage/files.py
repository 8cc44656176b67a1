"""Reading and writing files: compressed or plain, and never left half-written."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import errno
import functools
import gzip
import hashlib
import io
import json
import logging
import lzma
import os
import re
import secrets
import shutil
import stat
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rerank.errors import NotFoundError, UserError, one_line

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ": lzma.open, b"BZh": bz2.open}
COMPRESSED = (".gz", ".xz", ".zst", ".bz2")
"""How the names of compressed files end."""

BINARY = {b"PAR1": "Parquet", b"ARROW1": "Arrow", b"PK\x03\x04": "a zip archive", b"SQLite": "an SQLite database"}
"""Kinds of files that are no text, by their first bytes."""

LONGEST_LINE = 1 << 28
"""Bytes of a line that are read: what is longer has no line ends, or is 14 MB of zeros that unpack to 14 GB."""


def open_binary(path: str | Path) -> IO[bytes]:
    """Open a file for reading, decompressed if its first bytes say that it is compressed."""
    path = Path(path)
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file")
    with path.open("rb") as file:
        start = file.read(5)
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))
    return next((opener for mark, opener in _OPENERS.items() if start.startswith(mark)), open)(path, "rb")


@contextmanager
def open_parquet(path: Path, **options: Any) -> Iterator[ParquetFile]:
    """A Parquet file; what Arrow finds wrong with it, in the block too, becomes one line that names it."""
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file")
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path, **options) as file:
            yield file
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a readable Parquet file ({one_line(error)})") from error


def plain_name(path: Path) -> Path:
    """The name that a file has when it is not compressed."""
    return path.with_suffix("") if path.suffix in COMPRESSED else path


@contextmanager
def can_be_decompressed(path: Path) -> Iterator[None]:
    """Turn what a decompressor finds wrong with a file into one line that names it."""
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise UserError(f"{path}: cannot be decompressed ({error}); is it cut short?") from error


def raw_lines(path: str | Path) -> Generator[tuple[int, bytes]]:
    """The lines of a file, compressed or plain, with their numbers from 1 and their ends; without a byte-order mark."""
    path = Path(path)
    with open_binary(path) as file, can_be_decompressed(path):
        for number, raw in enumerate(iter(functools.partial(file.readline, LONGEST_LINE + 1), b""), 1):
            if len(raw) > LONGEST_LINE:
                raise _endless(path, number)
            yield number, _unmarked(raw, path) if number == 1 else raw


def _unmarked(beginning: bytes, path: Path) -> bytes:
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(f"{path}: is in UTF-16; save it as UTF-8")
    if mark := next((kind for start, kind in BINARY.items() if beginning.startswith(start)), None):
        raise UserError(f"{path}: is {mark}; expected text")
    return beginning.removeprefix(codecs.BOM_UTF8)


def _endless(path: Path, line: int) -> UserError:
    return UserError(f"{path}:{line}: a line of more than {LONGEST_LINE >> 20} MiB; are its line ends missing?")


def decoded(raw: bytes, path: str | Path, number: int) -> str:
    """A line as text; a UserError where it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{number}: the byte 0x{raw[error.start]:02x} is not UTF-8; save it as UTF-8") from error


def read_lines(
    path: str | Path, keep: Callable[[bytes], bool] | None = None, strict: bool = False
) -> Generator[tuple[int, str]]:
    """The lines of a text file, compressed or plain, with their numbers from 1, without their ends.

    Lines end with LF or CRLF; a byte-order mark is dropped and blank lines are left out. Bytes that are not UTF-8
    become U+FFFD, and the lines that hold some are counted and warned of, once a file, or they are refused
    (``strict``). ``keep`` tells from its bytes whether a line shall be read at all.
    """
    undecodable = 0
    for number, raw in raw_lines(path):
        if keep is not None and not keep(raw):
            continue
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            line = decoded(raw, path, number) if strict else raw.decode(errors="replace")
            undecodable += 1
        if line and not line.isspace():
            yield number, line.rstrip("\r\n")
    if undecodable:
        warn_once(f"{path}: {undecodable} lines hold bytes that are not UTF-8; these became U+FFFD")


def read_blocks(path: Path, size: int = 1 << 22) -> Iterator[bytes]:
    """The file as blocks of about so many bytes, cut behind line ends; a byte-order mark is dropped."""
    line = 1
    with open_binary(path) as file, can_be_decompressed(path):
        while block := file.read(size) + file.readline(LONGEST_LINE + 1):
            if len(block) > size + LONGEST_LINE:
                raise _endless(path, line + block.count(b"\n", 0, size))
            if whole := _unmarked(block, path) if line == 1 else block:
                yield whole
            line += block.count(b"\n")


@functools.cache
def say_once(message: str, level: int = logging.INFO) -> None:
    """Log a message, the first time that it comes up in this process."""
    logging.getLogger("rerank").log(level, message)


def warn_once(message: str) -> None:
    """Log a warning, the first time that it comes up in this process."""
    say_once(message, logging.WARNING)


def digest(*parts: str | bytes | Path) -> str:
    """Hex digest (16 characters of SHA-256) of strings, bytes and the contents of files, in this order."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            if not part.is_file():
                raise NotFoundError(f"{part}: no such file")
            with part.open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
        else:
            data = part.encode() if isinstance(part, str) else part
            total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:16]


def file_state(paths: Sequence[Path]) -> str:
    """Return a digest of names, sizes and modification times, which tells changed files without reading them."""
    stats = [path.stat() for path in paths]
    return digest(*(f"{path.name} {stat.st_size} {stat.st_mtime_ns}" for path, stat in zip(paths, stats, strict=True)))


def cache_folder() -> Path:
    """Where indexes and the like are kept: ``$RERANK_HOME``, or ``~/.cache/rerank``."""
    try:
        return Path(os.environ.get("RERANK_HOME") or "~/.cache/rerank").expanduser()
    except RuntimeError as error:
        raise UserError("there is no home folder to keep indexes in; set RERANK_HOME to a folder") from error


def temporary_beside(path: Path) -> Path:
    """A name to write to first, random: two machines that share a disk may have processes of the same id."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def old_beside(path: Path) -> Path:
    """Where a folder waits while another takes its place."""
    return path.with_name(f".{path.name}.rerank-old")


LEFTOVER = re.compile(r"\.(?P<name>.+)\.(?P<kind>[0-9a-f]{8}\.tmp|rerank-old)")
"""Names that `temporary_beside` and `old_beside` make."""


def make_parent(path: Path) -> None:
    """Make the folder that a file or folder shall be in."""
    for folder in path.parents:
        if folder.is_file():
            raise UserError(f"{path}: cannot be written, as {folder} is a file; name another place")
    path.parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def cannot_be_written(path: Path) -> Iterator[None]:
    """Turn what the file system refuses into one line that names the path; for our own steps, not a caller's block."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror}); check permissions and free space, or name another place"
        ) from error


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what killed writers left in a folder; a folder that one of them was replacing is put back.

    Args:
        folder: where they wrote.
        name: the file or folder that they wrote; all of them by default. The caller has its lock.
    """
    for path in [*folder.glob(".*")]:
        if (found := LEFTOVER.fullmatch(path.name)) is None or name not in (None, found["name"]):
            continue
        target = folder / found["name"]
        if found["kind"] == "rerank-old" and not os.path.lexists(target):
            os.rename(path, target)
            logging.getLogger("rerank").warning("%s: put back, as the process that replaced it was killed", target)
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, whole or not at all."""
    with atomic_write(path) as file:
        file.write(json.dumps(content, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; a UserError names a file that holds none."""
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file")
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error)}); copy or make it again") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object; copy or make it again")
    return content


def check_folder(output: str | Path | None) -> None:
    """Refuse a file where a folder is to be made."""
    if output is not None and Path(output).is_file():
        raise UserError(f"output: {output} is a file; name a folder")


OURS = {
    "rerank.json": re.compile("."),
    "candidates.arrow": re.compile(r"manifest\.json|.*\.arrow|(qrels|run)\.trec|columns/|tokens/"),
    "identity.json": re.compile(
        r"(identity|measures|kernels|provenance|test.*)\.json|config\.yaml|log\.txt|metrics\.jsonl|test\.trec|checkpoints/"
    ),
}
"""The file that a model, lists or a run is known by, and which files of the folder are theirs; others are a user's."""


def check_apart(output: str | Path, **inputs: Any) -> None:
    """Refuse to write over what is read, or is part of a model, of lists or of a run.

    Inputs are what is read, by the names of the options: a file, a folder whose files are all read, or the name of a
    collection with one of these behind its colon; what is no path is left aside.
    """
    target = Path(os.path.realpath(output))
    for name, given in inputs.items():
        if not isinstance(given, str | Path):
            continue
        behind = str(given).partition(":")[2]  # of beir:DIR/SPLIT the folder is there
        place = next(filter(os.path.exists, (given, behind, os.path.dirname(behind))), None)
        source = None if place is None else Path(os.path.realpath(place))
        if source and (target in source.parents or (target.is_file() and source in (target, *target.parents))):
            raise UserError(f"{output}: would overwrite what --{name} {given} reads; name another file")
    for folder in [*target.parents][:3] if target.is_file() else ():
        for mark, theirs in OURS.items():
            if (folder / mark).is_file() and theirs.match(target.relative_to(folder).as_posix()):
                raise UserError(f"{output}: is a part of {folder}; name another file")


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """A name beside a file's place to write to; what is there at the end takes the place, whole or not at all.

    The file behind a symbolic link is replaced, not the link. What is no regular file (a pipe, ``/dev/stdout``) is
    itself what to write to.
    """
    path = Path(path)
    if is_stream(path):
        yield path
        return
    path = Path(os.path.realpath(path))
    temporary = temporary_beside(path)
    with cannot_be_written(path):
        make_parent(path)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary.touch(exist_ok=False)  # as the umask has it; what cannot be written is found out before the work
    try:
        yield temporary
        with cannot_be_written(path):
            _flush(temporary)
            os.replace(temporary, path)
            _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def is_stream(path: Path) -> bool:
    """Whether a path is no regular file but a pipe, a terminal or the like, which is written to as it is."""
    # Behind /dev/stdout may be a regular file, which the shell holds open: replacing it would hide what comes after.
    if re.match(r"/dev/(std(in|out|err)|fd/)|/proc/", os.path.abspath(path)):
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _flush(path: Path) -> None:
    """Wait until a file's content, or a folder's names, are on the disk: a rename may outlive them in a power cut."""
    # Not every file system can flush a folder.
    with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[str]]:
    """Write a text file beside its place and rename it there at the end: readers see all of it or nothing."""
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file


@contextmanager
def atomic_folder(path: str | Path, replace: bool = False) -> Iterator[Path]:
    """Fill a folder beside its place and rename it there at the end.

    Args:
        path: where the folder shall be; through a symbolic link, the folder behind it.
        replace: replace a folder that is there already. It is moved aside, then deleted; if the process is
            killed in between, the next `remove_leftovers` puts it back.

    Yields:
        The temporary folder to fill; it is deleted when the block raises.
    """
    path = Path(os.path.realpath(path))
    temporary, old = temporary_beside(path), old_beside(path)
    if not replace:
        _refuse_existing(path)
    with cannot_be_written(path):
        make_parent(path)
        temporary.mkdir()
    try:
        yield temporary
        with cannot_be_written(path):
            for found in sorted(temporary.rglob("*")):
                if found.exists():
                    _flush(found)
            _flush(temporary)
            if replace and path.exists():
                shutil.rmtree(old, ignore_errors=True)
                os.rename(path, old)
        _refuse_existing(path)  # a rename would replace an empty folder
        with cannot_be_written(path):
            try:
                os.rename(temporary, path)
            except OSError:
                _refuse_existing(path)  # another process was faster by less than the check above takes
                raise
        _flush(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise UserError(f"{path}: exists already; remove it or choose another name")
