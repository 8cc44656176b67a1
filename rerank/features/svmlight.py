"""LETOR and svmlight files: parse them with scikit-learn, and store them as lists folders.

A line is ``LABEL qid:QUERY FEATURE:VALUE ... # docid = DOCUMENT``; the comment may be absent or say something else, and
features that are absent are 0. scikit-learn parses labels and features; queries, which need not be numbers, and
document ids, which it takes for comments, are read here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rerank.errors import UserError, one_line
from rerank.lists import Lists
from rerank.lists.writer import StoreWriter
from rerank.progress import tqdm
from rerank.storage.arrow import FLOAT32, Array, blocks, write_arrow
from rerank.storage.files import COMPRESSED, atomic_folder, open_binary

FEATURES = "features"
"""The column that a file's features become."""

MAX_LABEL = 30
"""The largest label that is read: gains are ``2^label - 1``."""

WIDTH = 10_001
"""Feature numbers are below this, as features are stored densely."""

ROWS = 1 << 16
"""Rows that are written at a time."""

EXAMPLE = "'2 qid:10 1:0.5 2:0 # docid = D1'"
LINE = re.compile(rb"^[^\S\n]*[^\s#]+[^\S\n]+qid:([^\s#:]+)(?![^\s#])[^#\n]*(?:#(?:.*?docid\s*=\s*(\S+))?.*)?$", re.M)


Block: TypeAlias = tuple[Array, list[tuple[str, str]], Any, int]
"""Consecutive rows of a file: labels, ``[n]`` int16; query and document of each, an empty document if the comment has
none; features, a sparse float32 matrix; number of values beyond float32 (Istella's 1.797e308), which count as 0."""


def store_features(path: Path, folder: Path, key: str, numbers: tuple[int, int] | None = None) -> Lists:
    """Store a file as a lists folder with the column ``features``, whose numbers are named as in the file.

    Lists keep the order of the file. Queries that are in several places of the file are joined.

    Args:
        path: the file.
        folder: the folder to make.
        key: hash of everything that decides the content of the folder.
        numbers: first and last feature to store even if the file does not mention them.
    """
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
    features = features[:, first:width]
    codes, queries = _factorize([query for query, _ in names])
    runs = codes[np.diff(codes, prepend=-1) != 0]
    order, lengths = np.argsort(codes, kind="stable"), np.bincount(codes)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids, repeated = _unique_ids(codes, [document for _, document in names])
    documents, distinct = _factorize(ids)
    with atomic_folder(folder) as temporary:
        for name, column, values in (("queries", "query_id", queries), ("documents", "doc_id", distinct)):
            write_arrow(temporary / f"{name}.arrow", pa.schema([(column, pa.string())]), [{column: values}])
        with StoreWriter(temporary, {FEATURES: [str(number) for number in range(first, width)]}) as writer:
            for begin, end in blocks(offsets, ROWS):
                some = order[offsets[begin] : offsets[end]]
                none = np.zeros(end - begin, np.int32)
                columns = {FEATURES: features[some].toarray()}
                writer.add(lengths[begin:end], none, documents[some], labels[some], **columns)
            writer.finish(
                collection={"name": str(path), "fingerprint": key},
                retriever={},
                features={"first": first, "width": width - first},
                order=None,
                judgments="grades",
                made={FEATURES: {"file": path.name}},
                counts={
                    "queries": len(queries),
                    "documents": len(distinct),
                    "pairs": len(labels),
                    "added_relevant": 0,
                    "scattered_queries": int((np.bincount(runs) > 1).sum()),
                    "repeated_documents": repeated,
                    "too_large_values": too_large,
                },
            )
    return Lists.open(folder)


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


def _factorize(names: Sequence[str]) -> tuple[Array, Any]:
    """Number names in the order in which they first occur: the number of each row, and the names."""
    encoded = pa.array(names, pa.string()).dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary


def _unique_ids(codes: Array, documents: Sequence[str]) -> tuple[list[str], int]:
    """Make document ids unique in each query; those that are made up differ from all in the file."""
    taken, seen, repeated = {*documents}, set[tuple[int, str]](), 0
    ids = list[str]()
    for row, (query, name) in enumerate(zip(codes.tolist(), documents, strict=True), 1):
        if name and (query, name) not in seen:
            seen.add((query, name))
            ids.append(name)
            continue
        repeated += bool(name)
        made = f"{name}#{row}" if name else str(row)
        while made in taken:
            made += "#"
        taken.add(made)
        ids.append(made)
    return ids, repeated
