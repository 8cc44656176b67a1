"""LETOR and svmlight files: parse them with scikit-learn.

A line is ``LABEL qid:QUERY FEATURE:VALUE ... # docid = DOCUMENT``; the comment may be absent or say something else, and
features that are absent are 0. scikit-learn parses labels and features; queries, which need not be numbers, and
document ids, which it takes for comments, are read here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rerank.errors import UserError, one_line
from rerank.lists.columns import Column
from rerank.lists.store import memory_store
from rerank.lists.view import Lists
from rerank.progress import log, tqdm
from rerank.storage.arrow import FLOAT32, Array
from rerank.storage.files import COMPRESSED, open_binary

FEATURES = "features"
"""The column that a file's features become."""

MAX_LABEL = 30
"""The largest label that is read: gains are ``2^label - 1``."""

WIDTH = 10_001
"""Feature numbers are below this, as features are stored densely."""

EXAMPLE = "'2 qid:10 1:0.5 2:0 # docid = D1'"
LINE = re.compile(rb"^[^\S\n]*[^\s#]+[^\S\n]+qid:([^\s#:]+)(?![^\s#])[^#\n]*(?:#(?:.*?docid\s*=\s*(\S+))?.*)?$", re.M)


Block: TypeAlias = tuple[Array, list[tuple[str, str]], Any, int]
"""Consecutive rows of a file: labels, ``[n]`` int16; query and document of each, an empty document if the comment has
none; features, a sparse float32 matrix; number of values beyond float32 (Istella's 1.797e308), which count as 0."""


def read_features(path: Path, numbers: tuple[int, int] | None = None) -> Lists:
    """Read a file as lists in memory with the column ``features``, whose numbers are named as in the file.

    Lists keep the order of the file. Queries that are in several places of the file are joined. Document ids are taken
    from the comments if every row has one; otherwise documents are named by their rows.

    Args:
        path: the file.
        numbers: first and last feature to keep even if the file does not mention them.

    Raises:
        UserError: a line that is not one of feature values, or a document that a query has twice.
    """
    import pandas as pd
    from scipy.sparse import vstack

    parsed = [block for block in _parse_file(path) if len(block[0])]
    if not parsed:
        raise UserError(f"{path}: no documents; expected lines like {EXAMPLE}")
    labels, names = np.concatenate([block[0] for block in parsed]), [name for block in parsed for name in block[1]]
    features, too_large = vstack([block[2] for block in parsed], format="csr"), sum(block[3] for block in parsed)
    first, last = numbers or (1, 0)
    first = 0 if (features.indices == 0).any() else first
    width = max(last + 1, int(features.indices.max(initial=-1)) + 1)
    if width <= first:
        raise UserError(f"{path}: no features; expected lines like {EXAMPLE}")
    ids = [document for _, document in names]
    if not all(ids):
        ids = [str(row) for row in range(1, len(ids) + 1)]
    rows = pd.DataFrame({"query_id": [query for query, _ in names], "doc_id": ids})
    if (again := rows.duplicated().to_numpy()).any():
        query, document = rows.iloc[int(again.argmax())]
        raise UserError(f"{path}: query {query!r} has document {document!r} twice; keep one row")
    codes, queries = rows["query_id"].factorize()
    documents, distinct = rows["doc_id"].factorize()
    places = np.bincount(codes[np.diff(codes, prepend=-1) != 0])
    if scattered := int((places > 1).sum()):
        log.warning("%s: %d queries are in several places of the file (joined)", path, scattered)
    if too_large:
        log.warning("%s: %d values are beyond float32 (taken for missing, so 0)", path, too_large)
    order = np.argsort(codes, kind="stable")
    values = features[order, first:width].toarray()
    column = Column(values, tuple(map(str, range(first, width))), {"file": path.name})
    tables = {"queries": pa.table({"query_id": queries}), "documents": pa.table({"doc_id": distinct})}
    lengths, documents = np.bincount(codes), documents[order]
    return Lists.of(
        memory_store(str(path), tables, lengths, documents, labels[order], {FEATURES: column}, by_grades=True)
    )


def _parse_file(path: Path) -> Iterator[Block]:
    """Parse a file block by block."""
    size = None if path.suffix in COMPRESSED else path.stat().st_size
    line = 1
    with tqdm(total=size, desc=f"reading {path.name}", unit="B", unit_scale=True, disable=None) as bar:
        for text in read_blocks(path):
            try:
                yield parse_block(text)
            except ValueError:
                for number, one in enumerate(text.split(b"\n"), line):  # find the line
                    try:
                        parse_block(one)
                    except ValueError as error:
                        raise UserError(f"{path}:{number}: {one_line(error)}") from error
                raise
            line += text.count(b"\n")
            bar.update(len(text))


def read_blocks(path: Path, size: int = 1 << 22) -> Iterator[bytes]:
    """Yield blocks of about this many bytes that end with lines."""
    with open_binary(path) as file:
        while block := file.read(size) + file.readline():
            yield block


def parse_block(text: bytes) -> Block:
    """Parse whole lines; a ValueError says what is wrong."""
    from sklearn.datasets import load_svmlight_file

    names = [(query.decode(errors="replace"), id.decode(errors="replace")) for query, id in LINE.findall(text)]
    try:
        features, labels = load_svmlight_file(io.BytesIO(text), n_features=WIDTH, dtype=np.float64, zero_based=True)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{one_line(error)}; expected features in ascending order, as in {EXAMPLE}") from error
    if len(names) != len(labels):
        raise ValueError(f"expected the query after the label, and spaces between, as in {EXAMPLE}")
    if len(wrong := labels[(labels < 0) | (labels > MAX_LABEL) | (labels != np.round(labels))]):
        raise ValueError(f"label {wrong[0]:g}; expected a whole number from 0 to {MAX_LABEL}")
    if np.isnan(features.data).any():
        raise ValueError("a feature is not a number; leave missing ones out")
    large = np.abs(features.data) > FLOAT32
    features.data = np.where(large, 0, features.data).astype(np.float32)
    return labels.astype(np.int16), names, features, int(large.sum())
