"""Runs: as columns and as a mapping, read from every format, and written so that every tool reads the same order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from rerank.errors import UserError
from rerank.html import shown
from rerank.progress import tqdm
from rerank.retrieval.pairs import PairFile, no_gaps
from rerank.storage.arrow import Array, blocks
from rerank.storage.files import COMPRESSED, atomic_write

if TYPE_CHECKING:
    import pandas as pd


SLICE = 1 << 14
"""Pairs in which duplicates are looked for at a time."""


class Scored(NamedTuple):
    """A document of a run: its id and its score."""

    id: str
    score: float


class RunTable(Mapping[str, list[Scored]]):
    """A run: query id -> documents, best first; what one query has is made when it is asked for.

    Attributes:
        queries: the ids of the queries, in the order in which the file has them.
        offsets: ``[Q + 1]`` where each query's documents start, and the last one's end.
        documents: ``[T]`` document ids (``large_string``), query after query, best first.
        scores: ``[T]`` float64, as they were read.
    """

    def __init__(self, queries: Sequence[str], offsets: Array, documents: pa.ChunkedArray, scores: Array) -> None:
        self.queries, self.offsets, self.documents, self.scores = queries, offsets, documents, scores
        self._positions = {query: position for position, query in enumerate(queries)}

    def __len__(self) -> int:
        return len(self.queries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.queries)

    def __contains__(self, query: object) -> bool:
        return query in self._positions

    def __getitem__(self, query: str) -> list[Scored]:
        position = self._positions[query]
        start, end = self.offsets[position : position + 2].tolist()
        ids = self.documents.slice(start, end - start).to_pylist()
        return list(map(Scored, ids, self.scores[start:end].tolist()))

    def __repr__(self) -> str:
        count, pairs = len(self), len(self.scores)
        return f"RunTable({count} quer{'y' if count == 1 else 'ies'}, {pairs} document{'' if pairs == 1 else 's'})"

    def to_dataframe(self) -> pd.DataFrame:
        """A row per document: ``query_id``, ``doc_id``, ``rank`` (from 1) and ``score``."""
        import pandas as pd

        lengths = np.diff(self.offsets)
        queries, ids = np.repeat(np.array(self.queries, dtype=object), lengths), self.documents.to_pylist()
        ranks = np.arange(len(self.scores)) - np.repeat(self.offsets[:-1], lengths) + 1
        return pd.DataFrame({"query_id": queries, "doc_id": ids, "rank": ranks, "score": self.scores})

    def _repr_html_(self) -> str:
        return shown(repr(self), self.to_dataframe())


class TwiceError(ValueError):
    """A query has a document twice; its arguments are the two ids."""


def as_table(queries: Sequence[str], codes: Array, documents: pa.ChunkedArray, ranks: Array, scores: Array) -> RunTable:
    """Lines of a run, ``[T]`` each, as a table: query after query, as they first appear.

    The documents of each are in descending order of score as float32, which is how trec_eval holds scores; ties in the
    order of ranks, then of lines. ``codes`` (int32) are the positions of the lines' queries among ``queries``.

    Raises:
        TwiceError: a query has a document twice.
    """
    keys = -as_float32(scores)
    if not _in_order(codes, keys, ranks):
        order = np.lexsort((ranks, keys, codes))
        codes, scores, documents = codes[order], scores[order], documents.take(pa.array(order))
    offsets = np.searchsorted(codes, np.arange(len(queries) + 1, dtype=codes.dtype))
    _check_once(queries, codes, offsets, documents)
    pa.default_memory_pool().release_unused()  # what the readers' buffers took
    return RunTable(queries, offsets, documents, scores)


def _in_order(codes: Array, keys: Array, ranks: Array) -> bool:
    tied = (keys[1:] == keys[:-1]) & (ranks[1:] >= ranks[:-1])
    within = (codes[1:] == codes[:-1]) & ((keys[1:] > keys[:-1]) | tied)
    return bool(((codes[1:] > codes[:-1]) | within).all())


def _check_once(queries: Sequence[str], codes: Array, offsets: Array, documents: pa.ChunkedArray) -> None:
    for first, last in blocks(offsets, SLICE):
        start, end = int(offsets[first]), int(offsets[last])
        some = documents.slice(start, end - start).combine_chunks().dictionary_encode()
        pairs = (codes[start:end] - first).astype(np.int64) * len(some.dictionary) + some.indices.to_numpy()
        pairs.sort()
        if len(twice := pairs[1:][pairs[1:] == pairs[:-1]]):
            query, document = divmod(int(twice[0]), len(some.dictionary))
            raise TwiceError(queries[first + query], some.dictionary[document].as_py())


def as_float32(scores: Sequence[float] | Array) -> Array:
    """Scores as float32; what is too large for it becomes its largest number."""
    limit = np.finfo(np.float32).max
    with np.errstate(over="ignore"):
        return np.clip(np.asarray(scores, dtype=np.float64).astype(np.float32), -limit, limit)


Run: TypeAlias = Mapping[str, Sequence[Scored]]
"""Query id -> documents, best first."""


def read_run(path: str | Path) -> RunTable:
    r"""Read a run: TREC's format (query, ``Q0``, document, rank, score, tag) or one of four others.

    A file of three columns is MS MARCO's (query, document, rank), and scores are 1 / rank. By their suffixes,
    ``.jsonl`` and ``.parquet`` have a query id (``query_id``, ``qid``), a document id (``doc_id``, ``docid``,
    ``docno``) and a ``score`` a line or row, their order standing for ranks; ``.json`` has lists as rank_llm stores
    them. All but Parquet may be compressed (``.gz``, ``.xz``, ``.zst``, ``.bz2``). Documents are put in descending
    order of score as float32, which is how trec_eval holds scores; ties in the order of the file's ranks, then of its
    lines.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "x.trec").write_text("q Q0 a 1 2.5 tag\n")
    ...     list(read_run(f"{folder}/x.trec")["q"])
    [Scored(id='a', score=2.5)]

    Raises:
        UserError: a wrong number of columns, a score or rank that is no number, or a document that a query has twice,
            with file and line.
    """
    try:
        return _read(path)
    except TwiceError as twice:
        query, id = twice.args
        where = _second_place(path, query, id)
        raise UserError(f"{where}: document {id!r} is in the list of query {query!r} already; keep one") from twice


def _read(path: str | Path) -> RunTable:
    numbers: dict[str, int] = {}
    queries, ranks, scores = ([np.zeros(0, kind)] for kind in (np.int32, np.int64, np.float64))
    documents: list[pa.Array] = []
    for pairs in PairFile(path, run=True).batches:
        codes = [numbers.setdefault(id, len(numbers)) for id in pairs.queries.dictionary.to_pylist()]
        queries.append(np.array(codes, np.int32)[pairs.queries.indices.to_numpy()])
        documents.append(pairs.documents)
        ranks.append(pairs.ranks)
        scores.append(no_gaps(pairs.values[:, 0], pairs.where))
    ids = pa.chunked_array(documents, pa.large_string())
    return as_table(list(numbers), _joined(queries), ids, _joined(ranks), _joined(scores))


def _joined(parts: list[Array]) -> Array:
    """The parts as one array; they are let go, as two copies of all columns are too many."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def _second_place(path: str | Path, query: str, document: str) -> str:
    places = (
        pairs.where(row)
        for pairs in PairFile(path, run=True).batches
        for row in np.flatnonzero(np.array(pairs.documents.to_pylist(), object) == document).tolist()
        if pairs.queries[row].as_py() == query
    )
    return next(islice(places, 1, None))


def check_run_file(path: str | Path) -> None:
    """Refuse a name that no run can be written to."""
    if Path(path).suffix in (*COMPRESSED, ".json", ".jsonl", ".parquet"):
        raise UserError(f"{path}: runs are written as plain TREC files; choose a name without {Path(path).suffix}")
    if Path(path).is_dir():
        raise UserError(f"{path}: is a folder; name a file")


def write_run(path: str | Path, run: Run | Iterable[tuple[str, Sequence[Scored]]], tag: str = "rerank") -> None:
    """Write a run in TREC's format, whole or not at all.

    The order of each list is kept. Ranks count from 1, and scores strictly decrease as float32, after being read back
    from the text too, because trec_eval sorts by them and breaks ties by document id: where a score is not below the
    one before it, it is lowered to the next float32.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_run(f"{folder}/x.trec", {"q": [Scored("b", 2.5), Scored("a", 1.0)]})
    ...     [scored.id for scored in read_run(f"{folder}/x.trec")["q"]]
    ['b', 'a']

    Args:
        path: the file. Queries without documents leave no line in it.
        run: query id -> documents, best first; or pairs of that, one after the other.
        tag: the run's name, its last column.

    Raises:
        UserError: an id or tag with white space, which the format cannot express, or a compressed file's name.
        ValueError: a score that is not a number, or a document twice in a list.
    """
    check_run_file(path)
    with atomic_write(path) as file:
        items = run.items() if isinstance(run, Mapping) else run
        for query, ranked in tqdm(items, f"writing {Path(path).name}", unit=" queries", disable=None, delay=2):
            ids, given = [document.id for document in ranked], [document.score for document in ranked]
            words = [tag, query, *ids]
            if " ".join(words).split() != words:
                odd = next(word for word in words if word.split() != [word])
                raise UserError(f"{path}: {odd!r} is empty or holds white space, which a run file cannot express")
            if len(set(ids)) < len(ids):
                raise ValueError(f"query {query!r} has a document twice")
            # Nine digits determine a float32, by way of a double too: they err by less than 5e-9 of the value,
            # and the border to the next float32 is 1.4e-8 of it away or more.
            rows = zip(ids, range(1, len(ids) + 1), strictly_decreasing(given).tolist(), strict=True)
            file.write("".join([f"{query} Q0 {id} {rank} {score:.9g} {tag}\n" for id, rank, score in rows]))


def best_first(ids: Sequence[str], scores: np.ndarray) -> list[int]:
    """Positions of the documents that have a score, in trec_eval's order: by score, then by id, both descending.

    So a column of scores ranks as trec_eval ranks the file that it was read from, whatever order the candidates have.

    >>> best_first(["a", "c", "b", "d"], np.array([1, 1, 2, np.nan], np.float32))
    [2, 1, 0]
    """
    given = np.flatnonzero(~np.isnan(scores)).tolist()
    values = scores.tolist()
    return sorted(given, key=lambda i: (values[i], ids[i]), reverse=True)


def strictly_decreasing(scores: Sequence[float] | np.ndarray) -> np.ndarray:
    """The nearest float32 scores from below that strictly decrease, in the given order, `[N]`.

    Float32 numbers in their order are numbered by integers (the bits, mirrored for negative ones), where "the next
    number below" is minus one: `k_i` becomes `min_{j ≤ i}(k_j − (i − j))`. Only where that would fall below the
    lowest finite number is a score raised.
    """
    if np.isnan(scores).any():
        raise ValueError("a score is not a number")
    bits = as_float32(scores).view(np.int32).astype(np.int64)
    keys = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    steps = np.arange(len(keys))
    keys = np.minimum.accumulate(keys + steps) - steps
    keys = np.maximum(keys, -LARGEST + (len(keys) - 1 - steps))
    bits = np.where(keys < 0, -keys | 0x80000000, keys).astype(np.uint32)
    return bits.view(np.float32)


LARGEST = int(np.finfo(np.float32).max.view(np.int32))
"""The bits of the largest finite float32, read as an integer."""
