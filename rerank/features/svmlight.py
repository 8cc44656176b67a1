"""LETOR and svmlight text, a block of lines at a time: as fast as columns can be parsed, and exact about faults.

A line is ``GRADE qid:QUERY INDEX:VALUE ... # docid = DOCUMENT``, with spaces or tabs between; the comment may be absent
or say something else, the ``qid`` is absent where a side file says which lines belong together, and features that are
absent are 0.

Almost all blocks are regular, so Arrow's CSV reader parses their features as two columns, ``INDEX:VALUE``; that gives
the interpreter's lock back and runs in threads. A block with anything out of the ordinary is parsed again, word by
word, by :func:`parse_carefully`, which is what defines the format and knows what to say about a fault and where.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyarrow import csv

from rerank.errors import UserError
from rerank.storage.arrow import FLOAT32, Array

MAX_GRADE = 30
"""The largest grade that is read: gains are ``2^grade - 1``."""

MAX_FEATURES = 10_000
"""The largest feature number that is read: features are stored densely."""

EXAMPLE = "'2 qid:10 1:0.5 2:0 # docid = D1'"

DOCID = re.compile(rb"docid\s*=\s*(\S+)")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
GRADES = {str(grade).encode(): grade for grade in range(MAX_GRADE + 1)}
A_FEATURE_A_LINE = bytes.maketrans(b" \t\r", b"\n\n\n")


@dataclass(frozen=True)
class Layout:
    """The features of the file that others have to agree with: test files with the training file."""

    first: int
    width: int
    source: str


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a file.

    Attributes:
        grades: ``[n]`` int16.
        queries: the queries in the order of the file, each with its number of consecutive rows; one, without a name,
            where lines have no ``qid``.
        documents: ``[n]`` document ids, null where the comment has none; None where no comment of the block has one.
        features: ``[n, width]`` float32, as wide as the largest number in this block.
        first: number of the first feature, 0 where the number 0 occurs or the layout says so, else 1.
        too_large: how many values are beyond float32 (Istella's 1.797e308): they count as missing, so as 0.
    """

    grades: Array
    queries: list[tuple[str, int]]
    documents: pa.Array | None
    features: Array
    first: int
    too_large: int


def parse_block(text: bytes, path: str, line: int = 1, *, qid: bool = True, layout: Layout | None = None) -> Block:
    """Parse whole lines."""
    block = parse_regularly(text, qid, layout)
    return parse_carefully(text, path, line, qid=qid, layout=layout) if block is None else block


def parse_regularly(text: bytes, qid: bool, layout: Layout | None) -> Block | None:
    """What `parse_block` does, in columns; None where anything is out of the ordinary."""
    grades: list[int] = []
    bodies: list[bytes] = []
    documents: list[str | None] = []
    names: list[bytes] = []
    head, commented, comment = 2 if qid else 1, b"#" in text, b""
    for line in text.split(b"\n"):
        if commented:
            line, _, comment = line.partition(b"#")
        words = line.split(None, head)
        if len(words) <= head:
            if words:
                return None  # a document without features, or not a document
            continue
        if (grade := GRADES.get(words[0])) is None:
            return None
        grades.append(grade)
        names.append(words[1] if qid else b"")
        bodies.append(words[-1])
        if commented:
            documents.append(_document(comment))
    if not grades:
        return None
    counts = np.fromiter((body.count(b":") for body in bodies), np.int64, len(bodies))
    columns = _parse_features(b"\n".join(bodies).translate(A_FEATURE_A_LINE))
    if columns is None or not np.isfinite(columns[1]).all():
        return None
    index, values = columns
    ends = np.cumsum(counts)
    unordered = np.diff(index, prepend=-1) <= 0
    unordered[ends - counts] = False
    if unordered.any() or not _fits(int(index.min()), int(index.max()), layout):
        return None
    runs = [(name.decode(errors="replace"), len(list(rows))) for name, rows in groupby(names)]
    if qid and not all(name.startswith("qid:") and len(name) > 4 and len(name.split()) == 1 for name, _ in runs):
        return None  # no query, or one with a blank that is none of ASCII's
    queries = [(name[4:], size) for name, size in runs]
    return _block(grades, queries, documents, counts, index, values, layout)


def _parse_features(text: bytes) -> tuple[Array, Array] | None:
    """``INDEX:VALUE`` lines as int32 and float64 columns; None where a line is anything else."""
    if b"x" in text or b"X" in text:  # 0x1 is a number to Arrow
        return None
    try:
        table = csv.read_csv(
            pa.py_buffer(text),
            read_options=csv.ReadOptions(
                column_names=["index", "value"], use_threads=False, block_size=min(len(text) + 1, 2**30)
            ),
            parse_options=csv.ParseOptions(delimiter=":", quote_char=False, double_quote=False),
            convert_options=csv.ConvertOptions(
                column_types={"index": pa.int32(), "value": pa.float64()}, null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        return None
    return table.column("index").to_numpy(), table.column("value").to_numpy()


def _fits(lowest: int, highest: int, layout: Layout | None) -> bool:
    if layout is None:
        return lowest >= 0 and highest <= MAX_FEATURES
    return lowest >= layout.first and highest < layout.first + layout.width


def _block(
    grades: list[int],
    queries: list[tuple[str, int]],
    documents: list[str | None],
    counts: Array,
    index: Array,
    values: Array,
    layout: Layout | None,
) -> Block:
    """A block of so many features a row, with their numbers and values, row after row."""
    large = np.abs(values) > FLOAT32
    too_large = int(large.sum())
    if too_large:
        values = np.where(large, 0.0, values)
    first = layout.first if layout else int(not len(index) or index.min() > 0)
    width = layout.width if layout else int(index.max(initial=first - 1)) + 1 - first
    if (counts == width).all():
        features = values.astype(np.float32).reshape(len(counts), width)
    else:
        features = np.zeros((len(counts), width), np.float32)
        features[np.repeat(np.arange(len(counts)), counts), index - first] = values
    ids = pa.array(documents, pa.string()) if any(documents) else None
    return Block(np.array(grades, np.int16), queries, ids, features, first, too_large)


def _document(comment: bytes) -> str | None:
    found = DOCID.search(comment)
    return found[1].decode(errors="replace") if found else None


def parse_carefully(text: bytes, path: str, line: int = 1, *, qid: bool = True, layout: Layout | None = None) -> Block:
    """What `parse_block` does, word by word; this is the definition of the format, and slow."""
    grades: list[int] = []
    rows: list[dict[int, float]] = []
    documents: list[str | None] = []
    names: list[str] = []
    for number, raw in enumerate(text.split(b"\n"), line):
        content, _, comment = raw.partition(b"#")
        words = [word.decode(errors="replace") for word in content.split()]
        if not words:
            continue
        where = f"{path}:{number}"
        grades.append(_grade(words[0], where))
        names.append(_qid(words[1] if len(words) > 1 else "", where) if qid else "")
        features: dict[int, float] = {}
        for word in words[1 + qid :]:
            feature, value = _feature(word, where, layout)
            if feature in features:
                raise UserError(f"{where}: feature {feature} is there twice; expected each once")
            features[feature] = value
        rows.append(dict(sorted(features.items())))
        documents.append(_document(comment))
    counts = np.array([len(row) for row in rows], np.int64)
    index = np.fromiter((i for row in rows for i in row), np.int64)
    values = np.fromiter((v for row in rows for v in row.values()), np.float64)
    queries = [(name, len(list(rows))) for name, rows in groupby(names)]
    return _block(grades, queries, documents, counts, index, values, layout)


def _grade(word: str, where: str) -> int:
    value = float(word) if NUMBER.fullmatch(word) else -1.0
    if not value.is_integer() or not 0 <= value <= MAX_GRADE:
        raise UserError(f"{where}: grade {word!r}; expected a whole number from 0 to {MAX_GRADE}")
    return int(value)


def _qid(word: str, where: str) -> str:
    if not word.startswith("qid:") or len(word) == 4:
        raise UserError(f"{where}: {word!r} after the grade; expected the query as in {EXAMPLE}")
    if len(word.split()) > 1:
        raise UserError(f"{where}: {word!r} has a blank that is no plain space; expected one after the query's id")
    return word[4:]


def _feature(word: str, where: str, layout: Layout | None) -> tuple[int, float]:
    left, colon, right = word.partition(":")
    if not colon or not (left.isascii() and left.isdigit() and len(left) < 20):
        raise UserError(f"{where}: {word!r}; expected NUMBER:VALUE as in {EXAMPLE}")
    if not NUMBER.fullmatch(right):
        raise UserError(f"{where}: feature {left} is {right!r}; expected a finite number (leave missing ones out)")
    index = int(left)
    if not _fits(index, index, layout):
        if layout is None:
            raise UserError(f"{where}: feature {index}; expected numbers up to {MAX_FEATURES}, they are stored densely")
        last = layout.first + layout.width - 1
        raise UserError(f"{where}: feature {index}, but {layout.source} has features {layout.first} to {last}")
    return index, float(right)


def has_qid(text: bytes) -> bool | None:
    """Whether the first document of these lines has a ``qid``; None where there is no document."""
    for line in text.split(b"\n"):
        if words := line.partition(b"#")[0].split(None, 2):
            return len(words) > 1 and words[1].startswith(b"qid:")
    return None
