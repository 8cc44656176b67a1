"""What becomes of files on disks, in transfers and in editors: damage by a seed."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
from pathlib import Path
from random import Random

import pyarrow as pa

from tests.builders import PACK

INSERTED = (
    *(b"\0", b"\n", b"\r", b"\t", b" ", b'"', b"\\", b"{", b"[", b"]", b"}", b"<", b">", b":", b",", b"-", b"#", b"="),
    *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc2\xa0", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\\ud800", b"\\u0000"),
    *(b"null", b"true", b"NaN", b"[]", b"{}", b'""', b"<DOC>", b"</DOC>", b"<top>", b".I 1\n", b"*a", b"&a ", b"!!"),
)
"""Bytes that mean something to one reader or another: white space of all kinds, brackets, halves of characters."""

NUMBERS = (
    *(b"0", b"-1", b"-0", b"1e400", b"-1e400", b"1e39", b"1e-400", b"1_0", b"0x10", b"1.5", b"inf", b"nan"),
    *(b"32768", b"2147483648", b"9223372036854775807", b"9223372036854775808", b"18446744073709551616"),
    *(b"9" * 400, b"9" * 5000, "٣".encode()),
)
"""In place of a number: beyond each of the types that hold one, and what only some readers take for one."""


def mutated(data: bytes, random: Random) -> bytes:
    """Damage some bytes: once mostly, up to four times."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        data = random.choice(KINDS)(data, random)
    return data


def mutated_file(path: Path, data: bytes, random: Random) -> bytes:
    """Damage a file's content; of one that is compressed, mostly what is in it."""
    if path.suffix not in PACK or random.random() < 0.3:
        return mutated(data, random)
    return PACK[path.suffix](mutated(UNPACK[path.suffix](data), random))


def flip(data: bytes, random: Random) -> bytes:
    if not data:
        return data
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << random.randrange(8))]) + data[place + 1 :]


def truncate(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def insert(data: bytes, random: Random) -> bytes:
    """Bytes that mean something, somewhere, once or very often."""
    place = random.randrange(len(data) + 1)
    return data[:place] + random.choice(INSERTED) * random.choice((1, 1, 1, 2, 3000)) + data[place:]


def delete(data: bytes, random: Random) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + data[place + random.choice((1, 2, 8, 64)) :]


def zero(data: bytes, random: Random) -> bytes:
    """A block of zeros, as a file system leaves it after a power cut."""
    place, size = random.randrange(len(data) + 1), random.choice((1, 8, 64, 512))
    return data[:place] + b"\0" * len(data[place : place + size]) + data[place + size :]


def number(data: bytes, random: Random) -> bytes:
    found = list(re.finditer(rb"[0-9]+", data))
    if not found:
        return insert(data, random)
    start, end = random.choice(found).span()
    return data[:start] + random.choice(NUMBERS) + data[end:]


def lines(data: bytes, random: Random) -> bytes:
    """A line twice, gone, or in another's place."""
    parts = data.splitlines(keepends=True) or [b""]
    one, other = random.randrange(len(parts)), random.randrange(len(parts))
    match random.randrange(3):
        case 0:
            parts.insert(one, parts[other])
        case 1:
            del parts[one]
        case _:
            parts[one], parts[other] = parts[other], parts[one]
    return b"".join(parts)


KINDS = (flip, truncate, insert, delete, zero, number, lines)


UNPACK = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
    ".zst": lambda data: pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(),
}
