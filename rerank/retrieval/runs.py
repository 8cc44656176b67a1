"""Run files, read from every format that people have and written so that every tool reads the same order from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from tqdm import tqdm

from rerank.collections.rankllm import read_lists
from rerank.errors import UserError
from rerank.files import atomic_write, read_lines
from rerank.retrieval.formats import Row, json_lines_rows, parquet_rows


class Scored(NamedTuple):
    """A document of a run: its id and its score."""

    id: str
    score: float


Run: TypeAlias = dict[str, list[Scored]]
"""Query id -> documents, best first."""


def read_run(path: str | Path) -> Run:
    """Read a run: TREC's format (query, ``Q0``, document, rank, score, tag) or, by its suffix, one of three others.

    ``.jsonl`` and ``.parquet`` have a query id (``query_id``, ``qid``), a document id (``doc_id``, ``docid``,
    ``docno``) and a ``score`` a line or row, their order standing for ranks; ``.json`` has lists as rank_llm stores
    them. All but Parquet may be compressed (``.gz``, ``.xz``). Documents are put in descending order of score as
    float32, which is how trec_eval holds scores; ties in the order of the file's ranks, then of its lines.

    Raises:
        UserError: a wrong number of columns, a score or rank that is no number, or a document that a query has twice,
            with file and line.
    """
    path = Path(path)
    keyed: dict[str, dict[str, tuple[float, int, float]]] = {}
    for where, query, document, rank, score in _rows(path):
        documents = keyed.setdefault(query, {})
        if document in documents:
            raise UserError(f"{where}: document {document!r} is in the list of query {query!r} already; keep one")
        value = _number(score, float, where)
        documents[document] = (-float(as_float32([value])[0]), int(_number(rank, int, where)), value)
    return {
        query: [Scored(id, documents[id][2]) for id in sorted(documents, key=lambda id: documents[id][:2])]
        for query, documents in keyed.items()
    }


def _rows(path: Path) -> Iterator[Row]:
    kind = path.with_suffix("").suffix if path.suffix in (".gz", ".xz") else path.suffix
    readers = {".json": _json_rows, ".jsonl": json_lines_rows, ".parquet": parquet_rows}
    return readers.get(kind, _trec_rows)(path)


def _trec_rows(path: Path) -> Iterator[Row]:
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        columns = line.split()
        if len(columns) != 6:
            expected = "six: query id, Q0, document id, rank, score, tag"
            raise UserError(f"{where}: {len(columns)} columns; expected {expected}")
        yield where, columns[0], columns[2], columns[3], columns[4]


def _json_rows(path: Path) -> Iterator[Row]:
    for query, hits in read_lists(path):
        for hit in hits:
            yield hit.where, query.id, hit.id, hit.rank, hit.score


def _number(given: Any, kind: type, where: str) -> float:
    try:
        value = kind(given)
        finite = math.isfinite(value)
    except (ValueError, TypeError, OverflowError):
        finite = False
    if not finite:
        raise UserError(f"{where}: {'score' if kind is float else 'rank'} {given!r}; expected a finite number")
    return value


def write_run(
    path: str | Path, run: Mapping[str, Sequence[Scored]], tag: str = "rerank", depth: int | None = None
) -> None:
    """Write a run in TREC's format, whole or not at all.

    The order of each list is kept. Ranks count from 1, and scores strictly decrease as float32, after being read back
    from the text too, because trec_eval sorts by them and breaks ties by document id: where a score is not below the
    one before it, it is lowered to the next float32.

    Args:
        path: the file. Queries without documents leave no line in it.
        run: query id -> documents, best first.
        tag: the run's name, its last column.
        depth: how many documents of a query are written at the most; None for all.

    Raises:
        UserError: an id or tag with white space, which the format cannot express, or a compressed file's name.
        ValueError: a score that is not a number, or a document twice in a list.
    """
    if Path(path).suffix in (".gz", ".xz", ".json", ".jsonl", ".parquet"):
        raise UserError(f"{path}: runs are written as plain TREC files; choose a name without {Path(path).suffix}")
    with atomic_write(path) as file:
        for query, ranked in tqdm(run.items(), f"writing {Path(path).name}", unit=" queries", disable=None, delay=2):
            documents = ranked[:depth]
            for id in (tag, query, *(document.id for document in documents)):
                if id.split() != [id]:
                    raise UserError(f"{path}: {id!r} is empty or holds white space, which a run file cannot express")
            if len({document.id for document in documents}) < len(documents):
                raise ValueError(f"query {query!r} has a document twice")
            scores = strictly_decreasing([document.score for document in documents])
            for rank, (document, score) in enumerate(zip(documents, scores.tolist(), strict=True), 1):
                # Nine digits determine a float32, by way of a double too: they err by less than 5e-9 of the value,
                # and the border to the next float32 is 1.4e-8 of it away or more.
                file.write(f"{query} Q0 {document.id} {rank} {score:.9g} {tag}\n")


def as_float32(scores: Sequence[float]) -> np.ndarray:
    """Scores as float32; what is too large for it becomes its largest number."""
    limit = float(np.finfo(np.float32).max)
    return np.clip(np.asarray(scores, dtype=np.float64), -limit, limit).astype(np.float32)


def strictly_decreasing(scores: Sequence[float]) -> np.ndarray:
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
