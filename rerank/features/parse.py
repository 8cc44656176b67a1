"""Store a LETOR or svmlight file as a lists folder, in the memory of a few blocks."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa

from rerank.errors import UserError
from rerank.features.svmlight import EXAMPLE, Block, Layout, parse_block
from rerank.lists import Lists
from rerank.lists.writer import StoreWriter
from rerank.progress import tqdm
from rerank.storage.arrow import Array, blocks, write_arrow
from rerank.storage.files import COMPRESSED, atomic_folder, open_binary, readable

ROWS = 1 << 16
"""Rows of features that are copied at a time."""

FEATURES = "features"
"""The column that a file's features become."""

QUERY_IDS = pa.schema([("query_id", pa.string())])
DOCUMENT_IDS = pa.schema([("doc_id", pa.string())])


def store_features(path: Path, folder: Path, key: str, layout: Layout | None = None) -> Lists:
    """Store a file as a lists folder with the column ``features``, whose numbers are named as in the file.

    The order of a list is the order of the file. Queries that are in several places of the file are joined. ``key`` is
    the hash of everything that decides what the folder holds; ``layout`` is that of the training file, for others.
    """
    with atomic_folder(folder) as temporary:
        raw, kept = temporary / "features.raw", list[Block]()  # everything but the features, which wait on the disk
        with raw.open("wb") as file:
            for block in _parse_file(path, layout):
                file.write(np.ascontiguousarray(block.features).data)  # tofile does not say why it fails
                kept.append(replace(block, features=np.empty((0, block.features.shape[1]))))
        if not kept:
            raise UserError(f"{path}: no documents; expected lines like {EXAMPLE}")
        width = max(block.features.shape[1] for block in kept)
        first = layout.first if layout else int(not any(block.has_zero for block in kept))
        if width <= first:
            raise UserError(f"{path}: no features; expected lines like {EXAMPLE}")
        if any(block.features.shape[1] < width for block in kept):
            _pad(raw, [(len(block.grades), block.features.shape[1]) for block in kept], width)
        _write(kept, temporary, raw, path, key, first, width)
    return Lists.open(folder)


def _parse_file(path: Path, layout: Layout | None) -> Iterator[Block]:
    """Parse a file block by block."""
    size = None if path.suffix in COMPRESSED else path.stat().st_size
    line = 1
    with tqdm(total=size, desc=f"reading {path.name}", unit="B", unit_scale=True, disable=None) as bar:
        for text in read_blocks(path):
            if len((block := parse_block(text, str(path), line, layout)).grades):
                yield block
            line += text.count(b"\n")
            bar.update(len(text))


def read_blocks(path: Path, size: int = 1 << 22) -> Iterator[bytes]:
    """Yield blocks of about this many bytes that end with lines, without a byte-order mark."""
    first = True
    with open_binary(path) as file, readable(path):
        while block := file.read(size) + file.readline():
            if block := block.removeprefix(codecs.BOM_UTF8) if first else block:
                yield block
            first = False


def _pad(raw: Path, shapes: list[tuple[int, int]], width: int) -> None:
    padded = raw.with_suffix(".padded")
    with raw.open("rb") as source, padded.open("wb") as target:
        for rows, columns in shapes:
            block = np.fromfile(source, np.float32, rows * columns).reshape(rows, columns)
            target.write(np.pad(block, ((0, 0), (0, width - columns))).data)
    padded.replace(raw)


def _write(kept: list[Block], folder: Path, raw: Path, path: Path, key: str, first: int, width: int) -> None:
    """Write the store; the features pass through memory some lists at a time."""
    grades, queries = np.concatenate([block.grades for block in kept]), [run for block in kept for run in block.queries]
    codes: dict[str, int] = {}
    run_codes = [codes.setdefault(name, len(codes)) for name, _ in queries]
    places = Counter(code for code, _ in groupby(run_codes))
    of_row = np.repeat(np.array(run_codes), [count for _, count in queries])
    order = np.argsort(of_row, kind="stable")
    lengths = np.bincount(of_row, minlength=len(codes))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids, repeated = _unique_ids(kept, of_row)
    distinct = pa.array(ids, pa.string()).dictionary_encode()
    documents = distinct.indices.to_numpy()
    write_arrow(folder / "queries.arrow", QUERY_IDS, [{"query_id": list(codes)}])
    write_arrow(folder / "documents.arrow", DOCUMENT_IDS, [{"doc_id": distinct.dictionary}])
    features = np.memmap(raw, np.float32, "r", shape=(len(grades), width))
    with StoreWriter(folder, {FEATURES: [str(number) for number in range(first, width)]}) as writer:
        for start, end in blocks(offsets, ROWS):
            rows = order[offsets[start] : offsets[end]]
            none = np.zeros(end - start, np.int32)
            writer.add(lengths[start:end], none, documents[rows], grades[rows], **{FEATURES: features[rows][:, first:]})
        raw.unlink()
        writer.finish(
            collection={"name": str(path), "fingerprint": key},
            retriever={},
            features={"first": first, "width": width - first},
            order=None,
            judgments="grades",
            made={FEATURES: {"file": path.name}},
            counts={
                "queries": len(codes),
                "documents": len(distinct.dictionary),
                "pairs": len(grades),
                "added_relevant": 0,
                "scattered_queries": sum(count > 1 for count in places.values()),
                "repeated_documents": repeated,
                "too_large_values": sum(block.too_large for block in kept),
            },
        )


def _unique_ids(kept: list[Block], of_row: Array) -> tuple[list[str], int]:
    """Return document ids unique in each query: missing and repeated ones are made up, apart from those of the file."""
    named = [id for block in kept for id in block.documents]
    taken, seen, repeated = {*named}, set[tuple[int, str]](), 0
    ids = list[str]()
    for row, (query, id) in enumerate(zip(of_row.tolist(), named, strict=True), 1):
        if id is not None and (query, id) not in seen:
            seen.add((query, id))
            ids.append(id)
            continue
        repeated += id is not None
        made = str(row) if id is None else f"{id}#{row}"
        while made in taken:
            made += "#"
        taken.add(made)
        ids.append(made)
    return ids, repeated
