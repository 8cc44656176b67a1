"""TREC's and MS MARCO's run files as columns, a block of lines at a time: as fast as Arrow reads CSV.

Almost all files are regular: words with spaces or tabs between, numbers that are numbers. Where anything is out of the
ordinary, nothing is returned; :mod:`rerank.retrieval.formats` then reads the file line by line, which is what defines
the formats and knows what to say about a fault and where.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from rerank.retrieval.table import FLOAT32, RunTable, as_table
from rerank.storage.arrow import Array
from rerank.storage.files import read_blocks

ODD = re.compile(r"[^\S \t\n\r]")
"""What Python takes for white space between words, and Arrow does not."""
TYPES = {"query": pa.dictionary(pa.int32(), pa.string()), "document": pa.large_string(), "rank": pa.int64()}
LAYOUTS = {6: ("query", "q0", "document", "rank", "score", "tag"), 3: ("query", "document", "rank")}


class Lines:
    """Columns of a run that come some lines at a time, in the order of the file."""

    def __init__(self) -> None:
        self.queries: dict[str, int] = {}
        self.codes: list[Array] = []
        self.documents: list[pa.Array] = []
        self.ranks: list[Array] = []
        self.scores: list[Array] = []

    def add(self, queries: pa.DictionaryArray, documents: pa.Array, ranks: Array, scores: Array) -> None:
        """Append lines."""
        numbers = [self.queries.setdefault(id, len(self.queries)) for id in queries.dictionary.to_pylist()]
        self.codes.append(np.array(numbers, np.int32)[queries.indices.to_numpy()])
        self.documents.append(documents)
        self.ranks.append(ranks)
        self.scores.append(scores)

    def table(self) -> RunTable:
        """All lines as a run; these columns are emptied on the way."""
        codes, ranks, scores = (_joined(parts) for parts in (self.codes, self.ranks, self.scores))
        documents = pa.chunked_array(self.documents, pa.large_string())
        self.documents.clear()
        return as_table(list(self.queries), codes, documents, ranks, scores)


def _joined(parts: list[Array]) -> Array:
    whole = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    parts.clear()
    return whole


def read_regular(path: Path) -> RunTable | None:
    """A run file of six columns (TREC) or three (MS MARCO); None where anything is out of the ordinary.

    Raises:
        TwiceError: a query has a document twice.
    """
    lines, layout = Lines(), None
    for text in read_blocks(path):
        if (tidy := _tidy(text)) is None:
            return None
        if not tidy:
            continue
        layout = layout or LAYOUTS.get(tidy.partition(b"\n")[0].count(b" ") + 1)
        if layout is None or not _add(lines, tidy, layout):
            return None
    return lines.table()


def _tidy(text: bytes) -> bytes | None:
    """The lines with one space between words and nothing else around; None where something is out of the ordinary."""
    signs = np.frombuffer(text, np.uint8)
    known = sum(text.count(sign) for sign in (b"\n", b"\t", b"\r"))
    if np.count_nonzero(signs < 32) > known or text.count(b"\r") > text.count(b"\r\n"):
        return None
    if not text.isascii():
        try:
            if ODD.search(text.decode()):
                return None
        except UnicodeDecodeError:
            return None
    text = text.replace(b"\t", b" ")
    blank = signs <= 32
    if blank[0] or text[-1:] == b" " or (blank[1:] & blank[:-1]).any():
        text = re.sub(rb" *[\n\r]+[ \n\r]*", b"\n", re.sub(rb" +", b" ", text)).strip(b" ").lstrip(b"\n")
    return text


def _add(lines: Lines, text: bytes, layout: tuple[str, ...]) -> bool:
    """Append the lines of a block; whether all of them are as they should be."""
    hexadecimal = rb"(?m)^(\S+ ){%d}[+-]?0[xX]" % layout.index("rank")  # a number to Arrow, and to nobody else
    if (b"0x" in text or b"0X" in text) and re.search(hexadecimal, text):
        return False
    try:
        table = csv.read_csv(
            pa.py_buffer(text),
            read_options=csv.ReadOptions(column_names=layout, use_threads=False, block_size=len(text) + 1),
            parse_options=csv.ParseOptions(delimiter=" ", quote_char=False, double_quote=False),
            convert_options=csv.ConvertOptions(
                include_columns=[name for name in layout if name not in ("q0", "tag")],
                column_types=TYPES | {"score": pa.float64()},
                null_values=[],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return False
    queries, documents, ranks = (table.column(name).combine_chunks() for name in TYPES)
    ranks = ranks.to_numpy()
    if len(layout) == 3:
        if not (ranks > 0).all():
            return False
        scores = 1 / ranks
    else:
        scores = table.column("score").to_numpy()
        if not (np.abs(scores) <= FLOAT32).all():  # nor NaN
            return False
    lines.add(queries, documents, ranks, scores)
    return True
