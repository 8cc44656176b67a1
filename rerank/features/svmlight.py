"""LETOR and svmlight text, a block of lines at a time.

A line is ``GRADE qid:QUERY INDEX:VALUE ... # docid = DOCUMENT``; the comment may be absent or say something else, the
``qid`` is absent if a side file says which lines belong together, and features that are absent are 0. scikit-learn
parses the features; queries, which need not be numbers, and document ids, which it takes for comments, are read here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from rerank.errors import UserError, one_line
from rerank.storage.arrow import FLOAT32, Array

MAX_GRADE = 30
"""The largest grade that is read: gains are ``2^grade - 1``."""

MAX_FEATURES = 10_000
"""The largest feature number that is read: features are stored densely."""

EXAMPLE = "'2 qid:10 1:0.5 2:0 # docid = D1'"
DOCID = re.compile(rb"docid\s*=\s*(\S+)")
GRADES = {str(grade).encode(): grade for grade in range(MAX_GRADE + 1)}


@dataclass(frozen=True)
class Layout:
    """The features of a training file, with which validation and test files have to agree."""

    first: int
    width: int
    source: str


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a file.

    Attributes:
        grades: ``[n]`` int16.
        queries: the queries in the order of the file, each with its number of consecutive rows.
        documents: ``[n]`` document ids, None if the comment has none.
        features: ``[n, width]`` float32, from number 0 to the largest in this block.
        has_zero: whether the number 0 occurs.
        too_large: number of values beyond float32 (Istella's 1.797e308): they count as missing, so as 0.
    """

    grades: Array
    queries: list[tuple[str, int]]
    documents: list[str | None]
    features: Array
    has_zero: bool
    too_large: int


def parse_block(text: bytes, path: str, line: int = 1, layout: Layout | None = None) -> Block:
    """Parse whole lines, of which the first has this number in the file."""
    grades, names, documents = list[int](), list[str](), list[str | None]()
    for number, raw in _lines(text, line):
        content, _, comment = raw.partition(b"#")
        words = content.split(None, 2)
        grade = GRADES.get(words[0])
        grades.append(_grade(words[0], f"{path}:{number}") if grade is None else grade)
        names.append(_query(words[1] if len(words) > 1 else b"", f"{path}:{number}"))
        found = DOCID.search(comment) if comment else None
        documents.append(found[1].decode(errors="replace") if found else None)
    try:
        features = _features(text, layout)
    except ValueError:
        for number, raw in _lines(text, line):  # find the line
            try:
                _features(raw, layout)
            except ValueError as error:
                raise UserError(f"{path}:{number}: {one_line(error)}") from error
        raise
    large = np.abs(features.data) > FLOAT32
    features.data = np.where(large, 0, features.data).astype(np.float32)
    dense = features.toarray()[: len(grades)]
    if layout:
        dense = np.pad(dense, ((0, 0), (0, layout.first + layout.width - dense.shape[1])))
    queries = [(name, len(list(rows))) for name, rows in groupby(names)]
    return Block(np.array(grades, np.int16), queries, documents, dense, 0 in features.indices, int(large.sum()))


def _lines(text: bytes, line: int) -> Iterator[tuple[int, bytes]]:
    return ((number, raw) for number, raw in enumerate(text.split(b"\n"), line) if raw.partition(b"#")[0].strip())


def _features(text: bytes, layout: Layout | None) -> Any:
    """Parse the features as a sparse matrix ``[n, largest number + 1]`` float64; a ValueError says what is wrong."""
    from sklearn.datasets import load_svmlight_file

    try:
        features = load_svmlight_file(io.BytesIO(text), zero_based=True, dtype=np.float64)[0]
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{one_line(error)}; expected features in ascending order, as in {EXAMPLE}") from error
    if np.isnan(features.data).any():
        raise ValueError("a feature is not a number; leave missing ones out")
    first, last = (layout.first, layout.first + layout.width - 1) if layout else (0, MAX_FEATURES)
    if len(wrong := features.indices[(features.indices < first) | (features.indices > last)]):
        stored = f"expected numbers up to {MAX_FEATURES}, as features are stored densely"
        why = f"but {layout.source} has features {first} to {last}" if layout else stored
        raise ValueError(f"feature {wrong[0]}{',' if layout else ';'} {why}")
    return features


def _grade(word: bytes, where: str) -> int:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not value.is_integer() or not 0 <= value <= MAX_GRADE:
        shown = word.decode(errors="replace")
        raise UserError(f"{where}: grade {shown!r}; expected a whole number from 0 to {MAX_GRADE}")
    return int(value)


def _query(word: bytes, where: str) -> str:
    name = word.decode(errors="replace")
    if not name.startswith("qid:") or len(name) == 4:
        raise UserError(f"{where}: {name!r} after the grade; expected the query as in {EXAMPLE}")
    if not name.isascii() and len(name.split()) > 1:
        raise UserError(f"{where}: {name!r} has a blank that is no plain space; expected one after the query's id")
    return name[4:]
