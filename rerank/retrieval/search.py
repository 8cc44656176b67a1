"""BM25's result on disk, in parts that are whole or absent: memory is that of a part, and a killed search resumes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

import pyarrow as pa

from rerank.collections import Query
from rerank.collections.jvm import anserini_jar
from rerank.errors import UserError
from rerank.progress import tqdm
from rerank.retrieval.bm25 import BM25
from rerank.retrieval.runs import Scored
from rerank.storage.arrow import read_arrow, write_arrow
from rerank.storage.files import atomic_file, digest
from rerank.storage.hashes import UNSEALED, check_seal, seal
from rerank.storage.locks import held

log = logging.getLogger("rerank")

PAIRS = 1 << 17
"""Pairs of a query and a document in a part, about 20 MB of memory."""
SCHEMA = pa.schema(
    [("query_id", pa.string()), ("documents", pa.list_(pa.string())), ("scores", pa.list_(pa.float32()))],
    metadata=UNSEALED,
)


class StoredRun(Mapping[str, Sequence[Scored]]):
    """A run (query id -> documents, best first) in numbered Arrow files, of which one at a time is in memory.

    The queries are in the order of the parts, ``size`` of them in each; the last may have fewer.
    """

    def __init__(self, folder: Path, queries: Sequence[Query], size: int) -> None:
        self.folder, self.size = folder, size
        self._queries = queries
        self._positions = {query.id: position for position, query in enumerate(queries)}
        self._loaded: tuple[int, list[list[Scored]]] = (-1, [])

    def __len__(self) -> int:
        return len(self._positions)

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __getitem__(self, query_id: str) -> list[Scored]:
        part, row = divmod(self._positions[query_id], self.size)
        if self._loaded[0] != part:
            table = read_arrow(self.path(part))
            documents, scores = table.column("documents").to_pylist(), table.column("scores").to_pylist()
            self._loaded = part, [list(map(Scored, *pair)) for pair in zip(documents, scores, strict=True)]
        return self._loaded[1][row]

    def path(self, part: int) -> Path:
        """The file of a part."""
        return self.folder / f"{part:06d}.arrow"

    def queries_of(self, part: int) -> Sequence[Query]:
        """The queries of a part."""
        return self._queries[part * self.size : (part + 1) * self.size]

    def missing(self) -> list[int]:
        """The parts that are not there, or not whole."""
        return [part for part in range(-(-len(self._queries) // self.size)) if not self._is_whole(part)]

    def _is_whole(self, part: int) -> bool:
        if not self.path(part).exists():
            return False
        try:
            check_seal(self.path(part))
            stored = read_arrow(self.path(part)).column("query_id").to_pylist()
        except UserError:
            return False
        return stored == [query.id for query in self.queries_of(part)]

    def write(self, part: int, found: Sequence[Sequence[Scored]]) -> None:
        """Store the lists of a part's queries."""
        batch = {
            "query_id": [query.id for query in self.queries_of(part)],
            "documents": [[scored.id for scored in ranked] for ranked in found],
            "scores": [[scored.score for scored in ranked] for ranked in found],
        }
        with atomic_file(self.path(part)) as temporary:
            write_arrow(temporary, SCHEMA, [batch])
            seal(temporary)


def search_stored(
    model: BM25, index: Path, queries: Sequence[Query], folder: Path, depth: int, threads: int | None = None
) -> StoredRun:
    """Search for all queries, or for those that an earlier attempt has not stored yet.

    Args:
        model: BM25 and its parameters.
        index: folder of a Lucene index.
        queries: what to search for.
        folder: where the result is stored, below a name made of all that decides it.
        depth: how many documents a query gets at the most.
        threads: how many threads search; by default one a core.

    Returns:
        What ``model.search`` returns, on disk.
    """
    segments = sorted(index.glob("segments_*"))  # they hold an id that is made when they are written
    texts = (text.encode(errors="replace") for query in queries for text in query)
    key = digest("1", anserini_jar().name, json.dumps(vars(model)), str(depth), *segments, *texts)
    run = StoredRun(folder / key, queries, max(1, PAIRS // depth))
    with held(run.folder, f"searching {index}", wait=True):
        _search_missing(model, index, run, depth, threads)
    return run


def _search_missing(model: BM25, index: Path, run: StoredRun, depth: int, threads: int | None) -> None:
    missing = run.missing()
    todo = sum(len(run.queries_of(part)) for part in missing)
    if todo < len(run):
        log.info("resuming a search that was stopped: %d of %d queries are done", len(run) - todo, len(run))
    wanted = (query for part in missing for query in run.queries_of(part))
    with (
        closing(model.results(index, wanted, depth, threads)) as results,
        tqdm(desc="BM25", total=len(run), initial=len(run) - todo, unit=" queries", disable=None) as bar,
    ):
        for part in missing:
            found = []
            for ranked in islice(results, len(run.queries_of(part))):
                found.append(ranked)
                bar.update()
            run.write(part, found)
