"""Numbers about pairs of a query and a document, from files of any kind: TREC runs, CSV, JSON lines, Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rerank.collections.base import checked_id, checked_ids
from rerank.collections.fields import NAMES
from rerank.collections.records import read_csv, read_json_objects
from rerank.errors import UserError, nearest
from rerank.retrieval.formats import FIELDS, WORDS, id_array, kind_of, read_rows
from rerank.retrieval.table import TwiceError
from rerank.retrieval.trec import read_regular
from rerank.storage.arrow import Array
from rerank.storage.batched import batched
from rerank.storage.files import open_parquet

ROWS = 1 << 19
"""Rows in memory at a time."""
LARGEST = float(np.finfo(np.float32).max)
NOT_NUMBERS = {*NAMES["query"], *NAMES["text"], "title", "grade", "rank"} | {
    "iteration",
    "q0",
    "tag",
    "run",
    "system",
    "name",
}
"""What fields of a file are called that are not meant, where none is called ``score``."""
RIGHT = '{"query_id": "7", "doc_id": "d1", "score": 9.5}'


class Scores(NamedTuple):
    """Some rows of a file.

    Attributes:
        where: the file and line or row of each, as messages name it, by its position here.
        queries: query ids.
        documents: document ids.
        values: ``[n, C]`` float64, finite as float32; NaN where the file has no number.
    """

    where: Callable[[int], str]
    queries: pa.Array
    documents: pa.Array
    values: Array


class ScoreFile:
    """A file of pairs with a number each, or several.

    ``.jsonl``, ``.csv``, ``.tsv`` and ``.parquet`` have a query id, a document id (named as
    :data:`rerank.retrieval.formats.FIELDS` says) and a ``score``, or any number of other fields of numbers; ``.json``
    has lists as rank_llm stores them; every other file is a run in TREC's or MS MARCO's format. All but Parquet may be
    compressed.

    Attributes:
        path: the file.
        names: what its numbers are called.

    Raises:
        UserError: no such file, an empty one, one without the fields that it needs.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        readers = {".jsonl": _json_lines, ".csv": _csv, ".tsv": _csv, ".parquet": _parquet}
        self.names, self._batches = readers.get(kind_of(self.path), _run)(self.path)

    def batches(self) -> Iterator[Scores]:
        """The rows, once.

        Raises:
            UserError: a row that cannot be read, with its place.
        """
        yield from self._batches


Reader = tuple[list[str], Iterator[Scores]]
Row = tuple[str, object, object, Sequence[object]]
"""Place, query id, document id, numbers."""


def _run(path: Path) -> Reader:
    def batches() -> Iterator[Scores]:
        table = None
        if kind_of(path) != ".json":
            with suppress(TwiceError):  # it may be of no candidate; who reads line by line knows where it is
                table = read_regular(path)
        if table is None or not len(table.scores) or np.abs(table.scores).max() > LARGEST:
            rows = ((where, query, document, [score]) for where, query, document, _, score in read_rows(path))
            yield from _in_batches(path, ["score"], rows)
            return
        for start in range(0, len(table.scores), ROWS):
            scores = table.scores[start : start + ROWS, None]
            of = np.searchsorted(table.offsets, np.arange(start, start + len(scores)), side="right") - 1
            queries = pa.array(table.queries, pa.string()).take(pa.array(of))
            documents = pa.concat_arrays(table.documents.slice(start, ROWS).chunks)
            yield Scores(lambda i: str(path), queries, documents, scores)

    return ["score"], batches()


def _json_lines(path: Path) -> Reader:
    records = read_json_objects(path, RIGHT)
    first = next(records, None)
    if first is None:
        raise _empty(path)
    query, document, names = _fields(f"{path}:{first[0]}", list(first[1]))

    def rows() -> Iterator[Row]:
        for number, record in chain([first], records):
            try:
                yield f"{path}:{number}", record[query], record[document], [record[name] for name in names]
            except KeyError as error:
                raise UserError(
                    f"{path}:{number}: no field {error}, which line {first[0]} has; null means none"
                ) from None

    return names, _in_batches(path, names, rows())


def _csv(path: Path) -> Reader:
    lines = read_csv(path)
    first = next(lines, None)
    if first is None:
        raise _empty(path)
    place, header = first
    query, document, names = _fields(f"{path}:{place}", header)
    q, d, chosen = header.index(query), header.index(document), [header.index(name) for name in names]
    rows: Iterator[Row] = (
        (f"{path}:{number}", cells[q], cells[d], [cells[i] for i in chosen]) for number, cells in lines
    )
    return names, _in_batches(path, names, rows)


def _parquet(path: Path) -> Reader:
    with open_parquet(path) as opened:
        schema = opened.schema_arrow
    query, document, names = _fields(str(path), schema.names)
    for name in names:
        kind = schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise UserError(f"{path}: column {name!r} holds {kind}, no numbers; leave it out of the file")

    def batches() -> Iterator[Scores]:
        start = 1
        with open_parquet(path) as file:
            for batch in file.iter_batches(ROWS, columns=[query, document, *names]):
                where = partial(_row_of, path, start)
                ids = [_parquet_ids(batch.column(name), where) for name in (query, document)]
                numbers = [batch.column(name).cast(pa.float64()).fill_null(np.nan).to_numpy() for name in names]
                values = np.stack(numbers, axis=1)
                if (wrong := np.abs(values) > LARGEST).any():
                    row, number = np.argwhere(wrong)[0].tolist()
                    _refuse(where(row), names[number], float(values[row, number]))
                yield Scores(where, ids[0], ids[1], values)
                start += len(batch)
        if start == 1:
            raise _empty(path)

    return names, batches()


def _row_of(path: Path, first: int, row: int) -> str:
    return f"{path}: row {first + row}"


def _parquet_ids(ids: pa.Array, where: Callable[[int], str]) -> pa.Array:
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    text = pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type) or pa.types.is_string_view(ids.type)
    if not (text or pa.types.is_integer(ids.type)):
        raise UserError(f"{where(0)}: an id of type {ids.type}; expected a string or a whole number")
    found = ids.cast(pa.large_string())
    odd = pc.match_substring_regex(found, r"[\s\p{Z}]|^$").fill_null(True).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(odd).tolist():
        checked_id(ids[row].as_py(), where(row))
    return found


def _in_batches(path: Path, names: Sequence[str], rows: Iterator[Row]) -> Iterator[Scores]:
    there = False
    for some in batched(rows, ROWS):
        there = True
        places = [row[0] for row in some]
        ids = [id_array(checked_ids([row[i] for row in some], places.__getitem__), places) for i in (1, 2)]
        numbers = [_floats([row[3][i] for row in some], places, name) for i, name in enumerate(names)]
        yield Scores(places.__getitem__, ids[0], ids[1], np.stack(numbers, axis=1))
    if not there:
        raise _empty(path)


def _floats(given: Sequence[object], places: Sequence[str], name: str) -> Array:
    """Numbers, NaN where there are none (null, or an empty cell)."""
    values = np.empty(len(given))
    for i, value in enumerate(given):
        if value is None or value == "":
            values[i] = np.nan
            continue
        try:
            values[i] = number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = np.nan
        if not abs(number) <= LARGEST or isinstance(value, bool) or (isinstance(value, str) and "_" in value):
            _refuse(places[i], name, value)
    return values


def _refuse(where: str, name: str, value: object) -> None:
    raise UserError(f"{where}: {name} {value!r}; expected a finite number that a float32 can hold")


def _fields(where: str, fields: Sequence[str]) -> tuple[str, str, list[str]]:
    """Which fields are the query's id, the document's and the numbers."""
    if len(set(fields)) < len(fields):
        twice = next(field for field in fields if list(fields).count(field) > 1)
        raise UserError(f"{where}: has {twice!r} twice; rename one")
    ids = []
    for field in ("query_id", "doc_id"):
        found = next((name for name in FIELDS[field] if name in fields), None)
        if found is None:
            known = nearest(FIELDS[field][0], fields) or f"; fields: {', '.join(fields) or 'none'}"
            raise UserError(f"{where}: no {WORDS[field]}{known}; expected fields as in {RIGHT}")
        ids.append(found)
    every = {name for names in FIELDS.values() for name in names}
    names = [name for name in FIELDS["score"] if name in fields][:1]
    names = names or [name for name in fields if name not in every and name.lower() not in NOT_NUMBERS]
    if not names:
        raise UserError(f"{where}: no score; fields: {', '.join(fields)}; expected fields as in {RIGHT}")
    return ids[0], ids[1], names


def _empty(path: Path) -> UserError:
    return UserError(f"{path}: is empty; expected a row per query and document, with a number")
