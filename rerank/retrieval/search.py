"""BM25's result on disk, in nameless files: memory is that of some queries, and a killed search leaves nothing."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from rerank.collections import Query
from rerank.progress import tqdm
from rerank.retrieval.bm25 import BM25
from rerank.retrieval.runs import RunTable
from rerank.storage.arrow import FlatFile
from rerank.storage.batched import batched

PAIRS = 1 << 17
"""Pairs of a query and a document that are held at a time, about 20 MB of memory."""
DOCUMENTS = pa.schema([("document", pa.large_string())])
SCORES = pa.schema([("score", pa.float32())])


def search_stored(
    model: BM25, index: Path, queries: Sequence[Query], folder: Path, depth: int, threads: int | None = None
) -> RunTable:
    """What ``model.search`` returns, mapped from files that go away with it."""
    lengths = [0]
    with FlatFile(folder, SCORES) as scores, tempfile.TemporaryFile(dir=folder) as file:
        with (
            pa.ipc.new_stream(file, DOCUMENTS) as writer,
            closing(model.results(index, queries, depth, threads)) as results,
            tqdm(results, "BM25", len(queries), unit=" queries", disable=None) as ranked,
        ):
            for lists in batched(ranked, max(1, PAIRS // depth)):
                pairs = list(chain.from_iterable(lists))
                lengths.extend(map(len, lists))
                ids = pa.array([document.id for document in pairs], pa.large_string())
                writer.write_batch(pa.record_batch([ids], schema=DOCUMENTS))
                scores.add(score=np.array([document.score for document in pairs], np.float32))
        file.flush()
        mapped = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        documents = pa.ipc.open_stream(mapped).read_all().column("document")
        return RunTable([query.id for query in queries], np.cumsum(lengths), documents, scores.mapped("score"))
