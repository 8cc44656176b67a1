"""Runs: rankings of many queries, read from files and other libraries' objects, and written in TREC's format."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from rerank.collections.base import checked_id
from rerank.collections.tables import NAMES, is_table, named_columns
from rerank.errors import UserError
from rerank.progress import log, tqdm
from rerank.storage.arrow import FLOAT32, Array, blocks
from rerank.storage.files import COMPRESSED, atomic_write, read_lines

if TYPE_CHECKING:
    import pandas as pd

LAYOUTS = {6: ("query", "q0", "document", "rank", "score", "tag"), 3: ("query", "document", "rank")}
"""The columns of TREC's and of MS MARCO's runs."""

FIELDS = {field: NAMES[field] for field in ("query_id", "doc_id", "score", "rank")}

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

SLICE = 1 << 14
"""Pairs in which duplicates are looked for at a time."""


class Scored(NamedTuple):
    """A document of a run: its id and its score."""

    id: str
    score: float


class RunTable(Mapping[str, list[Scored]]):
    """A run: query id -> documents, best first; lists are made on access.

    Attributes:
        queries: the ids of the queries, in the order of the source.
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
        """Return a row per document: ``query_id``, ``doc_id``, ``rank`` (from 1) and ``score``."""
        import pandas as pd

        lengths = np.diff(self.offsets)
        queries, ids = np.repeat(np.array(self.queries, dtype=object), lengths), self.documents.to_pylist()
        ranks = np.arange(len(self.scores)) - np.repeat(self.offsets[:-1], lengths) + 1
        return pd.DataFrame({"query_id": queries, "doc_id": ids, "rank": ranks, "score": self.scores})


Run: TypeAlias = Mapping[str, Sequence[Scored]]
"""Query id -> documents, best first."""


def as_float32(scores: Sequence[float] | Array) -> Array:
    """Convert scores to float32; what is too large becomes its largest number."""
    limit = np.finfo(np.float32).max
    with np.errstate(over="ignore"):
        return np.clip(np.asarray(scores, dtype=np.float64).astype(np.float32), -limit, limit)


def _ranked(
    queries: Sequence[str], codes: Array, documents: pa.ChunkedArray, ranks: Array, scores: Array, name: str
) -> RunTable:
    """Sort the pairs of a run by query, float32 score (as trec_eval holds scores), rank and row."""
    order = np.lexsort((ranks, -as_float32(scores), codes))
    if (np.diff(order) != 1).any():
        codes, scores, documents = codes[order], scores[order], documents.take(pa.array(order))
    offsets = np.searchsorted(codes, np.arange(len(queries) + 1))
    for first, last in blocks(offsets, SLICE):
        start, end = int(offsets[first]), int(offsets[last])
        some = documents.slice(start, end - start).combine_chunks().dictionary_encode()
        pairs = (codes[start:end] - first).astype(np.int64) * len(some.dictionary) + some.indices.to_numpy()
        pairs.sort()
        if len(twice := pairs[1:][pairs[1:] == pairs[:-1]]):
            query, document = divmod(int(twice[0]), len(some.dictionary))
            id = some.dictionary[document].as_py()
            raise UserError(f"{name}: query {queries[first + query]!r} has document {id!r} twice; keep one")
    return RunTable(queries, offsets, documents, scores)


def read_run(path: str | Path) -> RunTable:
    r"""Read a run: TREC's six columns (query, ``Q0``, document, rank, score, tag) or MS MARCO's three.

    The scores of MS MARCO's (query, document, rank) are 1 / rank. Lines that start with ``#`` are comments. Files may
    be compressed. Documents are put in descending order of score as float32, which is how trec_eval holds scores; ties
    are in the order of ranks, then of lines. Tables (JSON lines, CSV, Parquet, rank_llm's JSON) are read, too, by the
    names of their columns.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "x.trec").write_text("q Q0 a 1 2.5 tag\n")
    ...     list(read_run(f"{folder}/x.trec")["q"])
    [Scored(id='a', score=2.5)]

    Raises:
        UserError: a wrong number of columns, a score or rank that is not a number, or a document twice in a query.
    """
    path = Path(path).expanduser()
    if is_table(path):
        from rerank.collections.records import read_records

        return _of_frame(read_records(path).frame, str(path), None, ordered=True)
    codes, documents = dict[str, int](), list[str]()
    queries, ranks, scores = array("i"), array("q"), array("d")
    width = comments = 0
    for number, line in read_lines(path):
        words = line.split()
        if words[0].startswith("#"):
            comments += 1
            continue
        width = width or len(words)
        if len(words) != width or width not in LAYOUTS:
            expected = [width] if width in LAYOUTS else LAYOUTS
            described = " or ".join(f"{count} ({', '.join(LAYOUTS[count])})" for count in expected)
            raise UserError(f"{path}:{number}: {len(words)} columns; expected {described}")
        document, rank = (words[2], words[3]) if width == 6 else (words[1], words[2])
        place = float(rank) if NUMBER.fullmatch(rank) else math.nan
        if not place.is_integer() or abs(place) >= 1 << 63 or (width == 3 and place < 1):
            least = " from 1" if width == 3 else ""
            raise UserError(f"{path}:{number}: rank {rank!r}; expected a whole number{least}")
        score = 1 / place if width == 3 else float(words[4]) if NUMBER.fullmatch(words[4]) else math.nan
        if not abs(score) <= FLOAT32:
            raise UserError(f"{path}:{number}: score {words[4]!r}; expected a finite number that a float32 can hold")
        queries.append(codes.setdefault(words[0], len(codes)))
        documents.append(document)
        ranks.append(int(place))
        scores.append(score)
    if comments:
        log.info("%s: skipped %d comment lines", path, comments)
    ids = pa.chunked_array([pa.array(documents, pa.large_string())])
    return _ranked(list(codes), np.array(queries), ids, np.array(ranks), np.array(scores), str(path))


def as_run(given: Any, name: str = "run", columns: Mapping[str, str] | None = None) -> RunTable:
    """Convert any supported form of a run to a `RunTable`, best document first.

    Documents are put in descending order of score as float32. Ties are in the order of ranks, or of a sequence; if
    neither is given, in descending order of ids, as trec_eval has them.

    >>> as_run({"q": {"a": 1.0, "b": 2.0, "c": 1.0}})["q"]
    [Scored(id='b', score=2.0), Scored(id='c', score=1.0), Scored(id='a', score=1.0)]
    >>> from ir_measures import ScoredDoc
    >>> as_run([ScoredDoc("q", "a", 1.0), ScoredDoc("q", "b", 2.0)])
    RunTable(1 query, 2 documents)

    Args:
        given: a run of ours; a dictionary from query ids to ``{document id: score}`` or to ``(document id, score)``
            pairs; a data frame, or anything that has ``to_pandas``; ir_measures' ``ScoredDoc`` one by one; ranx's
            ``Run``; or a file (see `read_run`).
        name: its name in messages.
        columns: what a frame calls ``query_id``, ``doc_id``, ``score`` (and ``rank``), if it is not a usual name.

    Raises:
        UserError: another form, a score that is not a number, or a document that a query has twice.
    """
    if isinstance(given, RunTable):
        return given
    if isinstance(given, str | Path):
        return read_run(given)
    if type(given).__module__.startswith("ranx"):
        given = given.to_dict()
    if hasattr(given, "to_pandas") or hasattr(given, "itertuples"):
        return _of_frame(given, name, columns)
    if isinstance(given, Mapping):
        return _of_mapping(given, name)
    if isinstance(given, Iterable):
        try:
            rows = [(one.query_id, one.doc_id, one.score) for one in given]
        except AttributeError as error:
            raise UserError(f"{name}: {error}; expected objects with query_id, doc_id and score") from error
        return _of_columns([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], None, name)
    raise UserError(f"{name}: {type(given).__name__} is not a run; give a dictionary, a data frame or a file")


def _of_frame(given: Any, name: str, columns: Mapping[str, str] | None, ordered: bool = False) -> RunTable:
    found = named_columns(given, FIELDS, columns, name, optional=["rank"])
    ranks = found.get("rank", list(range(len(found["score"]))) if ordered else None)
    return _of_columns(found["query_id"], found["doc_id"], found["score"], ranks, name)


def _of_mapping(given: Mapping[Any, Any], name: str) -> RunTable:
    queries, documents, scores, ranks = list[Any](), list[Any](), list[Any](), list[Any]()
    for query, ranked in given.items():
        try:
            pairs = list(ranked.items()) if isinstance(ranked, Mapping) else [(id, score) for id, score in ranked]
        except (TypeError, ValueError) as error:
            expected = f"expected documents with their scores, not {str(ranked)[:60]!r}"
            raise UserError(f"{name}: query {str(query)!r}: {expected}") from error
        queries += [query] * len(pairs)
        documents += [document for document, _ in pairs]
        scores += [score for _, score in pairs]
        ranks += range(len(pairs))
    ordered = not any(isinstance(ranked, Mapping) for ranked in given.values())
    empty = [checked_id(query, name) for query, ranked in given.items() if not len(ranked)]
    return _of_columns(queries, documents, scores, ranks if ordered else None, name, empty)


def _of_columns(
    queries: list[Any],
    documents: list[Any],
    scores: list[Any],
    ranks: list[Any] | None,
    name: str,
    empty: Sequence[str] = (),
) -> RunTable:
    ids, names = ([checked_id(id, f"{name}: pair {i}") for i, id in enumerate(of, 1)] for of in (documents, queries))
    codes: dict[str, int] = {}
    numbers = np.array([codes.setdefault(query, len(codes)) for query in names], np.int32)
    for query in empty:
        codes.setdefault(query, len(codes))

    def floats(given: list[Any], kind: str) -> Array:
        values = np.full(len(given), np.nan)
        for i, value in enumerate(given):
            with suppress(TypeError, ValueError, OverflowError):
                values[i] = float(value)
            if not np.abs(values[i]) <= FLOAT32:
                pair = f"query {names[i]!r}, document {ids[i]!r}"
                raise UserError(f"{name}: {pair}: {kind} {value!r}; expected a finite number that a float32 can hold")
        return values

    if ranks is None:  # as in trec_eval
        order = -np.argsort(np.argsort(np.array(ids, dtype=object), kind="stable"))
    else:
        order = floats(ranks, "rank")
    column = pa.chunked_array([pa.array(ids, pa.large_string())])
    return _ranked(list(codes), numbers, column, order, floats(scores, "score"), name)


def check_run_file(path: str | Path) -> None:
    """Refuse a name to which a run cannot be written."""
    if Path(path).suffix in COMPRESSED or is_table(Path(path)):
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
        UserError: an id or tag that the format cannot express (white space, a query's ``#``), or a compressed file's
            name.
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
            if query.startswith("#"):
                raise UserError(f"{path}: query {query!r} would be a comment in a run file; rename it")
            if len(set(ids)) < len(ids):
                raise ValueError(f"query {query!r} has a document twice")
            # Nine digits determine a float32, by way of a double too: they err by less than 5e-9 of the value,
            # and the border to the next float32 is 1.4e-8 of it away or more.
            rows = zip(ids, range(1, len(ids) + 1), strictly_decreasing(given).tolist(), strict=True)
            file.write("".join([f"{query} Q0 {id} {rank} {score:.9g} {tag}\n" for id, rank, score in rows]))


def best_first(ids: Sequence[str], scores: np.ndarray) -> list[int]:
    """Order the documents that have a score as trec_eval does: by score, then by id, both descending.

    So a column of scores ranks as trec_eval ranks the file that it was read from, whatever order the candidates have.

    >>> best_first(["a", "c", "b", "d"], np.array([1, 1, 2, np.nan], np.float32))
    [2, 1, 0]
    """
    given = np.flatnonzero(~np.isnan(scores)).tolist()
    values = scores.tolist()
    return sorted(given, key=lambda i: (values[i], ids[i]), reverse=True)


def strictly_decreasing(scores: Sequence[float] | np.ndarray) -> np.ndarray:
    """Lower scores to the nearest float32 numbers that strictly decrease, in the given order, `[N]`.

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
