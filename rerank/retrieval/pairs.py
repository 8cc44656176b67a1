"""Numbers about pairs of a query and a document, from files of any kind: runs, and columns for lists.

Arrow reads what is regular, a block at a time. From the first block on in which anything is out of the ordinary, rows
are read one by one and carefully, which is what defines the formats and names every fault.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from rerank.collections.base import checked_ids
from rerank.collections.fields import NAMES, some_names
from rerank.collections.rankllm import read_lists
from rerank.collections.records import read_csv, read_json_objects
from rerank.errors import UserError, nearest
from rerank.retrieval.trec import Regular, regular_blocks
from rerank.storage.arrow import FLOAT32, Array
from rerank.storage.batched import batched
from rerank.storage.files import open_parquet, plain_name, read_blocks, read_lines

log = logging.getLogger("rerank")

ROWS = 1 << 16
"""Rows that are held as objects at a time."""
FIELDS = some_names("query_id", "doc_id", "score")
NOT_NUMBERS = {*NAMES["query"], *NAMES["text"], "title", "grade", "rank"} | {
    *("iteration", "q0", "tag", "run", "system", "name")
}
"""What fields of a file are called that are not meant, where none is called ``score``."""
COLUMNS = {6: "six: query id, Q0, document id, rank, score, tag", 3: "three: query id, document id, rank"}
"""The columns of TREC's and of MS MARCO's runs."""
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
    :data:`rerank.collections.fields.NAMES` says) and a ``score``, or any number of other fields of numbers; ``.json``
    has lists as rank_llm stores them; every other file is a run in TREC's or MS MARCO's format. All but Parquet may be
    compressed.
    """

    def __init__(self, path: str | Path, run: bool = False) -> None:
        self.path = Path(path)
        readers = {".json": _json, ".jsonl": _json_lines, ".parquet": _parquet}
        if not run:
            readers |= {".csv": _csv, ".tsv": _csv}
        self.names, self._batches = readers.get(kind_of(self.path), _text)(self.path, run)

    def batches(self) -> Iterator[PairBatch]:
        """The rows, once."""
        yield from self._batches


def kind_of(path: Path) -> str:
    """What a file's name says about its format: its suffix, without that of a compression; Parquet has none."""
    return path.suffix if path.suffix == ".parquet" else plain_name(path).suffix


def _text(path: Path, run: bool) -> Reader:
    return ["score"], _batches(path, ["score"], partial(_text_rows, path), regular_blocks(path))


def _text_rows(path: Path) -> Iterator[Row]:
    """Six columns as TREC has them; or three as MS MARCO has them, whose score is 1 / rank, as Pyserini makes it."""
    expected = ""
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        columns = line.split()
        expected = expected or COLUMNS.get(len(columns), " (or ".join(COLUMNS.values()) + ")")
        if COLUMNS.get(len(columns)) != expected:
            raise UserError(f"{where}: {len(columns)} columns; expected {expected}")
        if len(columns) == 3:
            yield where, columns[0], columns[1], columns[2], [_reciprocal(columns[2], where)]
        else:
            yield where, columns[0], columns[2], columns[3], [columns[4]]


def _reciprocal(rank: str, where: str) -> float:
    if not (rank.isascii() and rank.isdigit() and len(rank) < 20 and int(rank)):
        raise UserError(f"{where}: rank {rank!r}; expected a whole number from 1")
    return 1 / int(rank)


def _json(path: Path, run: bool) -> Reader:
    def rows() -> Iterator[Row]:
        for query, hits in read_lists(path):
            for hit in hits:
                yield hit.where, query.id, hit.id, hit.rank, [hit.score]

    return ["score"], _batches(path, ["score"], rows)


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
                raise UserError(
                    f"{path}:{number}: no field {error}, which line {first[0]} has; null means none"
                ) from None

    return names, _batches(path, names, rows, _json_blocks(path, query, document, names))


def _json_blocks(path: Path, query: str, document: str, names: Sequence[str]) -> Iterator[Regular | None]:
    ids = [(query, pa.large_string()), (document, pa.large_string())]
    schema = pa.schema([*ids, *((name, pa.float64()) for name in names)])
    count = 0
    for text in read_blocks(path):
        try:
            table = arrow_json.read_json(
                io.BytesIO(text),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            )
        except pa.ArrowException:
            yield None
            return
        columns = [table.column(name).combine_chunks() for name in schema.names]
        lines = text.count(b"\n") + (not text.endswith(b"\n"))  # else several objects on a line, or blank lines
        if len(table) != lines or any(column.null_count for column in columns):
            yield None
            return
        queries, documents, *numbers = columns
        yield Regular(queries, documents, np.arange(count, count + lines), np.stack(numbers, axis=1))
        count += lines


def _csv(path: Path, run: bool) -> Reader:
    place, header = next(read_csv(path), (0, []))
    if not header:
        return ["score"], iter(())
    query, document, names = _fields(f"{path}:{place}", header, run)
    query_at, document_at, numbers_at = header.index(query), header.index(document), list(map(header.index, names))

    def rows() -> Iterator[Row]:
        for number, cells in islice(read_csv(path), 1, None):
            yield f"{path}:{number}", cells[query_at], cells[document_at], number, [cells[i] for i in numbers_at]

    return names, _batches(path, names, rows)


def _parquet(path: Path, run: bool) -> Reader:
    with open_parquet(path) as opened:
        schema = opened.schema_arrow
    query, document, names = _fields(str(path), schema.names, run)
    for name in names:
        kind = schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise UserError(f"{path}: column {name!r} holds {kind}, no numbers; leave it out of the file")

    def batches() -> Iterator[PairBatch]:
        count = 0
        with open_parquet(path) as file:
            for batch in file.iter_batches(ROWS, columns=[query, document, *names]):
                where = partial(_row_of, path, count + 1)
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


def _row_of(path: Path, first: int, row: int) -> str:
    return f"{path}: row {first + row}"


def _parquet_ids(ids: pa.Array, where: Callable[[int], str]) -> pa.Array:
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    text = pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type) or pa.types.is_string_view(ids.type)
    if not (text or pa.types.is_integer(ids.type)):
        raise UserError(f"{where(0)}: an id of type {ids.type}; expected a string or a whole number")
    texts = ids.cast(pa.large_string())
    if texts.null_count or not _are_ids(texts):
        checked_ids(texts.to_pylist(), where)
    return texts


def _fields(where: str, fields: Sequence[str], run: bool) -> tuple[str, str, list[str]]:
    if len(set(fields)) < len(fields):
        twice = next(field for field in fields if list(fields).count(field) > 1)
        raise UserError(f"{where}: has {twice!r} twice; rename one")
    usual = {field: next((name for name in names if name in fields), None) for field, names in FIELDS.items()}
    if usual["score"] is not None:
        numbers = [usual["score"]]
    else:
        ours = {name for names in FIELDS.values() for name in names} | NOT_NUMBERS
        numbers = [] if run else [name for name in fields if not {name, name.lower()} & ours]
    words = {"query id": usual["query_id"], "document id": usual["doc_id"], "score": numbers}
    for word, field in zip(words, FIELDS, strict=True):
        if not words[word]:
            others = nearest(field, fields) or f"; fields: {', '.join(fields) or 'none'}"
            raise UserError(f"{where}: no {word}{others}; expected fields as in {RIGHT}")
    return str(usual["query_id"]), str(usual["doc_id"]), numbers


def _batches(
    path: Path, names: Sequence[str], rows: Callable[[], Iterator[Row]], regular: Iterable[Regular | None] = ()
) -> Iterator[PairBatch]:
    """What Arrow has read, up to a None; what follows, row by row."""
    count = 0
    for block in regular:
        encoded = None if block is None else _encoded(block)
        if block is None or encoded is None:
            log.info("%s: from row %d on is read row by row, which is slower", path, count + 1)
            break
        yield PairBatch(partial(_place, rows, count), encoded, *block[1:])
        count += len(block.documents)
    else:
        if count:
            return
    for some in batched(islice(rows(), count, None), ROWS):
        places, queries, documents, ranks, numbers = zip(*some, strict=True)
        ids = [pa.array(checked_ids(given, places.__getitem__), pa.large_string()) for given in (queries, documents)]
        values = [_floats([row[i] for row in numbers], places, name) for i, name in enumerate(names)]
        order = np.array(list(map(_rank, ranks, places)), np.int64)
        yield PairBatch(places.__getitem__, ids[0].dictionary_encode(), ids[1], order, np.stack(values, axis=1))


def _encoded(block: Regular) -> pa.DictionaryArray | None:
    """The queries of a block; None where an id or a number is none."""
    queries = block.queries
    if not pa.types.is_dictionary(queries.type):
        queries = queries.dictionary_encode()
        if not (_are_ids(queries.dictionary) and _are_ids(block.documents)):
            return None
    return queries if (np.abs(block.values) <= FLOAT32).all() else None


def _are_ids(ids: pa.Array) -> bool:
    """Whether none is empty, holds white space or is no UTF-8."""
    if not len(ids):
        return True
    ends = np.frombuffer(ids.buffers()[1], np.int64)[ids.offset : ids.offset + len(ids) + 1]
    signs = np.frombuffer(ids.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    if (np.diff(ends) == 0).any() or (signs <= 32).any():
        return False
    try:
        return bool((signs < 128).all()) or not re.search(r"\s", signs.tobytes().decode())
    except UnicodeDecodeError:
        return False


def _place(rows: Callable[[], Iterator[Row]], number: int, row: int) -> str:
    """The place of a row that Arrow has read, for which rows are counted."""
    return next(islice(rows(), number + row, None))[0]


def _rank(rank: object, where: str) -> int:
    try:
        number = int(rank)  # type: ignore[call-overload]
    except (ValueError, TypeError, OverflowError):
        number = 1 << 63
    if not abs(number) < 1 << 63:
        raise UserError(f"{where}: rank {rank!r}; expected a finite number")
    return number


def _floats(given: Sequence[object], places: Sequence[str], name: str) -> Array:
    """Numbers, NaN where there are none (null, or an empty cell)."""
    values = np.full(len(given), np.nan)
    for i, value in enumerate(given):
        if value is None or value == "":
            continue
        with suppress(TypeError, ValueError, OverflowError):
            values[i] = float(value)  # type: ignore[arg-type]
        if not abs(values[i]) <= FLOAT32 or isinstance(value, bool) or (isinstance(value, str) and "_" in value):
            _refuse(places[i], name, value)
    return values


def _refuse(where: str, name: str, value: object) -> None:
    raise UserError(f"{where}: {name} {value!r}; expected a finite number that a float32 can hold")
