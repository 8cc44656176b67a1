"""Rows of runs in every format, one by one and carefully: this is what defines the formats and names every fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from rerank.collections.base import checked_id
from rerank.collections.fields import some_names
from rerank.collections.rankllm import read_lists
from rerank.collections.records import read_json_objects
from rerank.errors import UserError, nearest
from rerank.storage.files import open_parquet, plain_name, read_lines

Row: TypeAlias = tuple[str, str, str, object, object]
"""Place in the file, query id, document id, rank, score."""

FIELDS = some_names("query_id", "doc_id", "score")
WORDS = {"query_id": "query id", "doc_id": "document id", "score": "score"}
"""What messages call them."""


EXPECTED = {6: "six: query id, Q0, document id, rank, score, tag", 3: "three: query id, document id, rank"}
"""The columns of TREC's and of MS MARCO's runs."""


def kind_of(path: Path) -> str:
    """What a file's name says about its format: ``.json``, ``.jsonl``, ``.parquet``, or anything else for TREC's."""
    return path.suffix if path.suffix == ".parquet" else plain_name(path).suffix


def id_array(ids: Sequence[str], places: Sequence[str]) -> pa.Array:
    """Ids as Arrow holds them; one that is no Unicode is refused, with its place."""
    try:
        return pa.array(ids, pa.large_string())
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON's escapes can spell and UTF-8 cannot
        odd = next(i for i, id in enumerate(ids) if id.encode(errors="replace").decode() != id)
        raise UserError(f"{places[odd]}: an id that is not Unicode ({error.reason})") from error


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a run in any format."""
    readers = {".json": json_rows, ".jsonl": json_lines_rows, ".parquet": parquet_rows}
    return readers.get(kind_of(path), text_rows)(path)


def text_rows(path: Path) -> Iterator[Row]:
    """Six columns as TREC has them; or three as MS MARCO has them, whose score is 1 / rank, as Pyserini makes it."""
    expected = ""
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        columns = line.split()
        expected = expected or EXPECTED.get(len(columns), " (or ".join(EXPECTED.values()) + ")")
        if EXPECTED.get(len(columns)) != expected:
            raise UserError(f"{where}: {len(columns)} columns; expected {expected}")
        if len(columns) == 3:
            yield where, columns[0], columns[1], columns[2], _reciprocal(columns[2], where)
        else:
            yield where, columns[0], columns[2], columns[3], columns[4]


def _reciprocal(rank: str, where: str) -> float:
    if not (rank.isascii() and rank.isdigit() and len(rank) < 20 and int(rank)):
        raise UserError(f"{where}: rank {rank!r}; expected a whole number from 1")
    return 1 / int(rank)


def json_rows(path: Path) -> Iterator[Row]:
    """Lists as rank_llm stores them."""
    for query, hits in read_lists(path):
        for hit in hits:
            yield hit.where, query.id, hit.id, hit.rank, hit.score


def json_lines_rows(path: Path) -> Iterator[Row]:
    """One JSON object a line, one document an object; the file's order stands for ranks."""
    for number, record in read_json_objects(path, _RIGHT):
        yield _row(f"{path}:{number}", number, record)


def parquet_rows(path: Path) -> Iterator[Row]:
    """One document a row; the file's order stands for ranks."""
    with open_parquet(path) as file:
        columns = [key for key in file.schema_arrow.names if any(key in names for names in FIELDS.values())]
        batches = file.iter_batches(columns=columns)
        for number, record in enumerate((record for batch in batches for record in batch.to_pylist()), 1):
            yield _row(f"{path}: row {number}", number, record)


_RIGHT = '{"query_id": "7", "doc_id": "d1", "score": 9.5}'


def _row(where: str, number: int, record: Mapping[str, object]) -> Row:
    query, document, score = (_value(where, record, field) for field in FIELDS)
    return where, checked_id(query, where), checked_id(document, where), number, score


def _value(where: str, record: Mapping[str, object], field: str) -> object:
    for key in FIELDS[field]:
        if key in record:
            return record[key]
    known = nearest(FIELDS[field][0], record) or f"; fields: {', '.join(record) or 'none'}"
    raise UserError(f"{where}: no {WORDS[field]}{known}; expected {_RIGHT}")
