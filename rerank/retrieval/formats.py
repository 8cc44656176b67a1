"""Rows of runs that are not in TREC's format: JSON lines and Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from rerank.collections.base import checked_id
from rerank.collections.records import read_json_objects
from rerank.errors import UserError, nearest

Row: TypeAlias = tuple[str, str, str, object, object]
"""Place in the file, query id, document id, rank, score."""

FIELDS = {
    "query id": ("query_id", "qid", "query-id"),
    "document id": ("doc_id", "docid", "docno", "corpus-id"),
    "score": ("score",),
}
"""What fields are called: by ir_datasets and ir-measures first, then by Pyserini, PyTerrier, TIRA and BEIR."""


def json_lines_rows(path: Path) -> Iterator[Row]:
    """One JSON object a line, one document an object; the file's order stands for ranks."""
    for number, record in read_json_objects(path, _RIGHT):
        yield _row(f"{path}:{number}", number, record)


def parquet_rows(path: Path) -> Iterator[Row]:
    """One document a row; the file's order stands for ranks."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            columns = [key for key in file.schema_arrow.names if any(key in names for names in FIELDS.values())]
            batches = file.iter_batches(columns=columns)
            for number, record in enumerate((record for batch in batches for record in batch.to_pylist()), 1):
                yield _row(f"{path}: row {number}", number, record)
    except (ArrowException, OSError) as error:
        raise UserError(f"{path}: not a readable Parquet file ({error})") from error


_RIGHT = '{"query_id": "7", "doc_id": "d1", "score": 9.5}'


def _row(where: str, number: int, record: Mapping[str, object]) -> Row:
    query, document, score = (_value(where, record, field) for field in FIELDS)
    return where, checked_id(query, where), checked_id(document, where), number, score


def _value(where: str, record: Mapping[str, object], field: str) -> object:
    for key in FIELDS[field]:
        if key in record:
            return record[key]
    known = nearest(FIELDS[field][0], record) or f"; fields: {', '.join(record) or 'none'}"
    raise UserError(f"{where}: no {field}{known}; expected {_RIGHT}")
