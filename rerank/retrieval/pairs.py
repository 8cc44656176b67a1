"""Numbers about pairs of a query and a document, from files of any kind: runs, and columns for lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rerank.collections.base import checked_ids
from rerank.collections.hit_files import read_lists
from rerank.collections.records import NAMES, found_columns, read_csv, read_json_objects, some_names
from rerank.errors import UserError, nearest
from rerank.progress import log
from rerank.retrieval.trec import regular_blocks
from rerank.storage.arrow import FLOAT32, Array, batched
from rerank.storage.files import open_parquet, plain_name, read_lines

ROWS = 1 << 16
"""Rows that are held as objects at a time."""

FIELDS = some_names("query_id", "doc_id", "score")
NOT_NUMBERS = {*NAMES["query"], *NAMES["text"], "title", "grade", "rank"} | {
    *("iteration", "q0", "tag", "run", "system", "name")
}
"""What fields of a file are called that are not meant, where none is called ``score``."""

COLUMNS = {6: "six: query id, Q0, document id, rank, score, tag", 3: "three: query id, document id, rank"}
"""The columns of TREC's and of MS MARCO's runs."""

NO_ID = r"^$|[\s\v\x1c-\x1f\x85\pZ]"
"""What is empty or holds white space, as Python knows it."""

RIGHT = '{"query_id": "7", "doc_id": "d1", "score": 9.5}'

Row: TypeAlias = tuple[str, object, object, object, Sequence[object]]
"""Place in the file, query id, document id, rank, numbers."""
Reader: TypeAlias = "tuple[list[str], Iterator[PairBatch]]"


class PairBatch(NamedTuple):
    """Some rows of a file.

    Attributes:
        where: the file and line or row of each, as messages name it, by its position here.
        documents: document ids (``large_string``).
        ranks: ``[n]`` int64; rows count where the file has no ranks.
        values: ``[n, C]`` float64, finite as float32; NaN where the file has no number.
    """

    where: Callable[[int], str]
    queries: pa.DictionaryArray
    documents: pa.Array
    ranks: Array
    values: Array


class PairFile:
    """A file of pairs with a number each, or several.

    ``.jsonl``, ``.csv``, ``.tsv`` and ``.parquet`` have a query id, a document id (named as
    :data:`rerank.collections.records.NAMES` says) and a ``score``, or any number of other fields of numbers; ``.json``
    has lists as rank_llm stores them; every other file is a run in TREC's or MS MARCO's format. All but Parquet may be
    compressed. ``batches`` gives the rows, once.
    """

    def __init__(self, path: str | Path, run: bool = False) -> None:
        self.path = Path(path)
        readers = {".json": _json, ".jsonl": _json_lines}
        if not run:
            readers |= {".csv": _csv, ".tsv": _csv}
        read = _parquet if self.path.suffix == ".parquet" else readers.get(plain_name(self.path).suffix, _text)
        self.names, self.batches = read(self.path, run)


def _text(path: Path, run: bool) -> Reader:
    return ["score"], _text_batches(path)


def _text_batches(path: Path) -> Iterator[PairBatch]:
    """What Arrow reads as long as it is regular, then rows one by one, which defines the formats and names faults."""

    def place(first: int, row: int) -> str:
        return next(islice(_text_rows(path), first + row, None))[0]

    count = 0
    for block in regular_blocks(path):
        if block is None:
            log.info("%s: from row %d on is read row by row, which is slower", path, count + 1)
            yield from _batches(["score"], islice(_text_rows(path), count, None))
            return
        yield PairBatch(partial(place, count), *block)
        count += len(block[1])


def _text_rows(path: Path) -> Iterator[Row]:
    """Six columns as TREC has them; or three as MS MARCO has them, whose score is 1 / rank, as Pyserini makes it."""
    expected = ""
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        columns = line.split()
        expected = expected or COLUMNS.get(len(columns), " (or ".join(COLUMNS.values()) + ")")
        if COLUMNS.get(len(columns)) != expected:
            raise UserError(f"{where}: {len(columns)} columns; expected {expected}")
        if len(columns) == 6:
            yield where, columns[0], columns[2], columns[3], [columns[4]]
            continue
        query, document, rank = columns
        if not (rank.isascii() and rank.isdigit() and len(rank) < 20 and int(rank)):
            raise UserError(f"{where}: rank {rank!r}; expected a whole number from 1")
        yield where, query, document, rank, [1 / int(rank)]


def _json(path: Path, run: bool) -> Reader:
    lists = read_lists(path)
    rows = ((where, query.id, id, rank, [score]) for where, query, hits in lists for id, _, rank, score in hits)
    return ["score"], _batches(["score"], rows)


def _json_lines(path: Path, run: bool) -> Reader:
    first = next(read_json_objects(path, RIGHT), None)
    if first is None:
        return ["score"], iter(())
    query, document, names = _fields(f"{path}:{first[0]}", list(first[1]), run)

    def rows() -> Iterator[Row]:
        for number, record in read_json_objects(path, RIGHT):
            try:
                yield f"{path}:{number}", record[query], record[document], number, [record[name] for name in names]
            except KeyError as error:
                raise UserError(f"{path}:{number}: no field {error}, which line {first[0]} has; null is none") from None

    return names, _batches(names, rows())


def _csv(path: Path, run: bool) -> Reader:
    place, header = next(read_csv(path), (0, []))
    if not header:
        return ["score"], iter(())
    query, document, names = _fields(f"{path}:{place}", header, run)
    query_at, document_at, numbers_at = header.index(query), header.index(document), list(map(header.index, names))
    rows = (
        (f"{path}:{number}", cells[query_at], cells[document_at], number, [cells[i] for i in numbers_at])
        for number, cells in islice(read_csv(path), 1, None)
    )
    return names, _batches(names, rows)


def _parquet(path: Path, run: bool) -> Reader:
    with open_parquet(path) as opened:
        schema = opened.schema_arrow
    query, document, names = _fields(str(path), schema.names, run)
    for name in names:
        kind = schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise UserError(f"{path}: column {name!r} holds {kind}, no numbers; leave it out of the file")

    def batches() -> Iterator[PairBatch]:
        def place(first: int, row: int) -> str:
            return f"{path}: row {first + row + 1}"

        count = 0
        with open_parquet(path) as file:
            for batch in file.iter_batches(ROWS, columns=[query, document, *names]):
                where = partial(place, count)
                queries, documents = (_parquet_ids(batch.column(name), where) for name in (query, document))
                numbers = [batch.column(name).cast(pa.float64()).fill_null(np.nan).to_numpy() for name in names]
                values = np.stack(numbers, axis=1)
                if (wrong := np.abs(values) > FLOAT32).any():
                    row, number = np.argwhere(wrong)[0].tolist()
                    _refuse(where(row), names[number], float(values[row, number]))
                ranks = np.arange(count, count + len(batch))
                yield PairBatch(where, queries.dictionary_encode(), documents, ranks, values)
                count += len(batch)

    return names, batches()


def _parquet_ids(ids: pa.Array, where: Callable[[int], str]) -> pa.Array:
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    text = pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type) or pa.types.is_string_view(ids.type)
    if not (text or pa.types.is_integer(ids.type)):
        raise UserError(f"{where(0)}: an id of type {ids.type}; expected a string or a whole number")
    texts = ids.cast(pa.large_string())
    texts.validate(full=True)  # that they are UTF-8
    if texts.null_count or pc.any(pc.match_substring_regex(texts, NO_ID)).as_py():
        checked_ids(texts.to_pylist(), where)
    return texts


def _fields(where: str, fields: Sequence[str], run: bool) -> tuple[str, str, list[str]]:
    usual = found_columns(fields, FIELDS, None, where)
    numbers = [usual["score"]] if "score" in usual else []
    if not numbers and not run:
        ours = {name for names in FIELDS.values() for name in names} | NOT_NUMBERS
        numbers = [name for name in fields if not {name, name.lower()} & ours]
    words = {"query id": usual.get("query_id"), "document id": usual.get("doc_id"), "score": numbers}
    for word, field in zip(words, FIELDS, strict=True):
        if not words[word]:
            others = nearest(field, fields) or f"; fields: {', '.join(fields) or 'none'}"
            raise UserError(f"{where}: no {word}{others}; expected fields as in {RIGHT}")
    return usual["query_id"], usual["doc_id"], numbers


def _batches(names: Sequence[str], rows: Iterator[Row]) -> Iterator[PairBatch]:
    for some in batched(rows, ROWS):
        places, queries, documents, ranks, numbers = zip(*some, strict=True)
        where = places.__getitem__
        ids = [pa.array(checked_ids(given, where), pa.large_string()) for given in (queries, documents)]
        values = [floats([row[i] for row in numbers], where, name) for i, name in enumerate(names)]
        order = np.array(list(map(_rank, ranks, places)), np.int64)
        yield PairBatch(where, ids[0].dictionary_encode(), ids[1], order, np.stack(values, axis=1))


def _rank(rank: object, where: str) -> int:
    with suppress(ValueError, TypeError, OverflowError):
        number = float(rank)  # type: ignore[arg-type]
        if number.is_integer() and abs(number) < 1 << 63:
            return int(number)
    raise UserError(f"{where}: rank {rank!r}; expected a whole number")


def floats(given: Sequence[object], where: Callable[[int], str], name: str) -> Array:
    """Numbers, ``[n]`` float64, of which float32 holds every one; NaN where there are none (null, or an empty cell)."""
    values = np.full(len(given), np.nan)
    for i, value in enumerate(given):
        if value is None or (isinstance(value, str) and not value):  # pandas' NA has no truth
            continue
        with suppress(TypeError, ValueError, OverflowError):
            values[i] = float(value)  # type: ignore[arg-type]
        if not abs(values[i]) <= FLOAT32 or isinstance(value, bool) or (isinstance(value, str) and "_" in value):
            _refuse(where(i), name, value)
    return values


def _refuse(where: str, name: str, value: object) -> None:
    raise UserError(f"{where}: {name} {value!r}; expected a finite number that a float32 can hold")


def no_gaps(values: Array, where: Callable[[int], str]) -> Array:
    """Scores, refused where one is missing."""
    if (missing := np.isnan(values)).any():
        raise UserError(f"{where(int(missing.argmax()))}: no score; expected a finite number")
    return values
