"""TREC's and MS MARCO's run files as columns, a block of lines at a time, while all is regular, as it mostly is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import csv

from rerank.storage.arrow import FLOAT32, Array
from rerank.storage.files import read_blocks

ODD = re.compile(r"[^\S \t\n\r]")
"""What Python takes for white space between words, and Arrow does not."""

TYPES = {"query": pa.dictionary(pa.int32(), pa.string()), "document": pa.large_string(), "rank": pa.int64()}
LAYOUTS = {6: ("query", "q0", "document", "rank", "score", "tag"), 3: ("query", "document", "rank")}


Rows: TypeAlias = tuple[pa.DictionaryArray, pa.Array, Array, Array]
"""Some rows: ids of queries and documents, ranks ``[n]``, scores ``[n, 1]``."""


def regular_blocks(path: Path) -> Iterator[Rows | None]:
    """The blocks of a file of six columns (TREC) or three (MS MARCO); None, the last, for one that is odd."""
    layout = None
    for text in read_blocks(path):
        tidy = _tidy(text)
        if not tidy and tidy is not None:
            continue
        layout = layout or (LAYOUTS.get(tidy.partition(b"\n")[0].count(b" ") + 1) if tidy else None)
        rows = _read(tidy, layout) if tidy and layout else None
        yield rows
        if rows is None:
            return


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


def _read(text: bytes, layout: tuple[str, ...]) -> Rows | None:
    """The lines of a block; None where one is not as it should be."""
    hexadecimal = rb"(?m)^(\S+ ){%d}[+-]?0[xX]" % layout.index("rank")  # a number to Arrow, and to nobody else
    if (b"0x" in text or b"0X" in text) and re.search(hexadecimal, text):
        return None
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
        return None
    queries, documents, ranks = (table.column(name).combine_chunks() for name in TYPES)
    ranks = ranks.to_numpy()
    if len(layout) == 3 and not (ranks > 0).all():
        return None
    scores = 1 / ranks if len(layout) == 3 else table.column("score").to_numpy()
    return (queries, documents, ranks, scores[:, None]) if (np.abs(scores) <= FLOAT32).all() else None
