"""Runs in JSON lines and Parquet as columns; None where anything is out of the ordinary.

As in :mod:`rerank.retrieval.trec`, such a file is then read row by row by :mod:`rerank.retrieval.formats`.
"""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from rerank.errors import UserError, one_line
from rerank.retrieval.formats import FIELDS
from rerank.retrieval.table import FLOAT32, RunTable, TwiceError
from rerank.retrieval.trec import Lines
from rerank.storage.arrow import Array, numbers
from rerank.storage.files import read_blocks

log = logging.getLogger("rerank")

NAMES = [name for names in FIELDS.values() for name in names]
TYPES = (pa.large_string(), pa.large_string(), pa.float64())
"""Of a query id, a document id and a score."""
SCHEMA = pa.schema([(name, kind) for names, kind in zip(FIELDS.values(), TYPES, strict=True) for name in names])


def read_regular_records(path: Path) -> RunTable | None:
    """A run in ``.jsonl`` or ``.parquet``; None where anything is out of the ordinary.

    Raises:
        TwiceError: a query has a document twice.
    """
    try:
        return _parquet(path) if path.suffix == ".parquet" else _json_lines(path)
    except (UserError, TwiceError):
        raise
    except (pa.ArrowException, ValueError, LookupError, OSError) as error:
        log.info("%s: is read row by row, which is slower (%s)", path, one_line(error))
        return None


def _parquet(path: Path) -> RunTable | None:
    from pyarrow.parquet import ParquetFile

    lines = Lines()
    with ParquetFile(path) as file:
        names = _chosen(set(file.schema_arrow.names))
        kinds = [file.schema_arrow.field(name).type for name in names]
        if not all(map(_is_id, kinds[:2])) or not (pa.types.is_integer(kinds[2]) or pa.types.is_floating(kinds[2])):
            return None
        for batch in file.iter_batches(columns=names):
            if not _add(lines, [batch.column(name).cast(kind) for name, kind in zip(names, TYPES, strict=True)]):
                return None
    return lines.table()


def _is_id(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)


def _json_lines(path: Path) -> RunTable | None:
    lines = Lines()
    for text in read_blocks(path):
        if not text.strip():
            continue
        table = arrow_json.read_json(
            io.BytesIO(text),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore"),
        )
        if len(table) != text.count(b"\n") + (not text.endswith(b"\n")):
            return None  # two objects on a line, one on several, or blank lines
        names = _chosen({name for name in NAMES if table.column(name).null_count < len(table)})
        if not _add(lines, [table.column(name).combine_chunks() for name in names]):
            return None
    return lines.table()


def _chosen(there: set[str]) -> list[str]:
    """The names of the query id, the document id and the score; an IndexError where there are none."""
    return [[name for name in names if name in there][0] for names in FIELDS.values()]  # noqa: RUF015 - not StopIteration


def _add(lines: Lines, columns: list[pa.Array]) -> bool:
    queries, documents, scores = columns
    if any(column.null_count for column in columns):
        return False
    values: Array = numbers(pa.chunked_array([scores]))
    encoded = queries.dictionary_encode()
    if not ((np.abs(values) <= FLOAT32).all() and _are_ids(encoded.dictionary) and _are_ids(documents)):
        return False
    before = sum(map(len, lines.scores))
    lines.add(encoded, documents, np.arange(before, before + len(values)), values)
    return True


def _are_ids(ids: pa.Array) -> bool:
    """Whether none is empty or holds white space."""
    if not len(ids):
        return True
    ends = np.frombuffer(ids.buffers()[1], np.int64)[ids.offset : ids.offset + len(ids) + 1]
    signs = np.frombuffer(ids.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    if (np.diff(ends) == 0).any() or (signs <= 32).any():
        return False
    return bool((signs < 128).all()) or not re.search(r"\s", signs.tobytes().decode())
