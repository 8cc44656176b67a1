"""Columns: systems' scores of the candidates, each in a file of its own that can be added and dropped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rerank.errors import NotFoundError, UserError, nearest
from rerank.storage.arrow import Array, FlatFile, list_numbers, read_arrow
from rerank.storage.files import plain_name

NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}")
"""Names of columns, which are names of files and appear in configurations."""


@dataclass(frozen=True)
class Column:
    """A system's scores of every candidate.

    Attributes:
        values: ``[T, C]`` float32; NaN where the system did not return the candidate.
        names: the names of the C numbers; of a single one it is the column's own.
    """

    values: Array
    names: tuple[str, ...]
    made: Mapping[str, Any] = field(default_factory=dict)

    def one(self, name: str) -> Array:
        """Return one of its numbers by name, ``[T]``."""
        if name not in self.names:
            raise UserError(f"column: no number {name!r} among {', '.join(self.names[:8])}{nearest(name, self.names)}")
        return self.values[:, self.names.index(name)]


def flat_names(names: Sequence[str], entries: Mapping[str, Column]) -> Iterator[str]:
    """Expand columns to their numbers: ``features`` becomes ``features/1``, ``features/2`` and so on."""
    for name in names:
        file, _, number = name.partition("/")
        yield from [name] if number else (f"{file}/{inner}" for inner in entries[file].names)


RESERVED = ("query_id", "doc_id", "query", "text", "grade", "grades")
"""Names of the lists' own fields."""


def check_name(name: str) -> str:
    """Validate the name of a column."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"column {name!r}: a name has letters, digits, '.', '_', '+' and '-', at most 100; call it "
            f"{as_name(name)!r}, say"
        )
    if name in RESERVED:
        raise UserError(f"column {name!r}: lists have a field of this name; call it {name}-score, say, by NAME=FILE")
    return name


def grouped(keys: Iterable[str], name: str) -> dict[str, list[str]]:
    """Group numbers by column: those called ``NAME/NUMBER`` are one column."""
    together: dict[str, list[str]] = {}
    for key in keys:
        together.setdefault(check_name(key.partition("/")[0]), []).append(key)
    for column, several in together.items():
        if len(several) > 1 and column in several:
            other = next(key for key in several if key != column)
            raise UserError(f"{name}: has columns {column} and {other}; rename one")
    return together


def as_name(text: str) -> str:
    """Turn a text into the name of a column."""
    return re.sub(r"[^\w.+-]+", "_", text, flags=re.ASCII).strip("._+-")[:100] or "run"


def named_files(words: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=FILE``, or ``FILE``, whose stem is the name, into files by column name."""
    named: dict[str, str] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals or Path(word).is_file():
            name, path = as_name(plain_name(Path(word)).stem), word
        path = str(Path(path).expanduser()) if path else path  # a shell leaves NAME=~/FILE as it is
        if not Path(path).is_file():
            raise NotFoundError(f"{path or word}: no such file; expected NAME=FILE or FILE")
        if check_name(name) in named:
            raise UserError(f"{path}: there is a column {name!r} already, of {named[name]}; write another NAME={path}")
        named[name] = path
    return named


def load_column(path: Path, candidates: str) -> Column:
    """Map a column's file."""
    table = read_arrow(path)
    about = table.schema.metadata or {}
    if about.get(b"candidates", b"").decode() != candidates:
        raise UserError(f"{path}: a column of other candidates than those of {path.parent.parent}; make it again")
    names = tuple(json.loads(about[b"names"]))
    values = pc.list_flatten(table.column(0)).to_numpy().reshape(-1, len(names))
    return Column(values, names, json.loads(about[b"made"]))


def column_file(folder: Path, numbers: int) -> FlatFile:
    """Open a collector of a column's numbers, ``values=[n, C]`` at a time."""
    return FlatFile(folder, pa.schema([("values", pa.list_(pa.float32(), numbers))]))


def write_column(file: FlatFile, path: Path, names: Sequence[str], candidates: str, made: Mapping[str, Any]) -> None:
    """Write a collected column, with its names, its candidates and its origin."""
    about = {"names": json.dumps(list(names)), "candidates": candidates, "made": json.dumps(dict(made))}
    file.write(path, about)


def as_column(name: str, block: Array) -> Array:
    """Convert numbers to ``[n, C]`` float32; refuse infinite ones, and different ones that become equal."""
    with np.errstate(over="ignore"):
        values = np.asarray(block, dtype=np.float32)
    if np.asarray(block).dtype.kind in "iu" and len(np.unique(block)) > len(np.unique(values)):
        raise UserError(f"column {name}: different whole numbers that are one in float32; rescale it, e.g. by rank()")
    if np.isinf(values).any():
        raise UserError(f"column {name}: has infinite numbers, or some beyond float32; expected finite ones, or NaN")
    return values[:, None] if values.ndim == 1 else values


SCALED = ":z"
"""Between a column and a number of candidates; a column's own name has no colon."""

LARGEST = 1e30
"""Bound of z, so that it is finite in float32."""


def scaled(column: str, depth: int) -> str:
    """Name a column's z over the first ``depth`` candidates, such as ``bm25:z100``."""
    return f"{column}{SCALED}{depth}"


def z_scores(values: Array, offsets: Array, added: Array, depth: int) -> Array:
    r"""Normalise scores with the mean and deviation of the best candidates of each list.

    .. math:: z_i = \frac{x_i - \mu}{\sigma}

    over the first ``depth`` candidates that have a number and were not added (population deviation, in float64). A
    candidate without a number has the lowest z of its list; if those first ones do not vary, every z is 0. An added
    one is no lower than the lowest of the others: otherwise only added ones, all of them relevant, would lie below
    the depth at which lists are cut, and a model would learn that low is good.

    >>> z_scores(np.array([3.0, 1.0, np.nan, 7.0]), np.array([0, 3, 4]), np.zeros(4, bool), 100).tolist()
    [1.0, -1.0, -1.0, 0.0]

    Args:
        values: ``[T]``, list after list, best first; NaN where a system did not return the candidate.
        offsets: ``[Q + 1]`` where each list starts, and the last ends.
        added: ``[T]`` whether a candidate was added for training; its number affects no other candidate.
        depth: number of best candidates of a list that give the mean and deviation.
    """
    if not len(values):
        return np.zeros(0, np.float32)
    offsets = offsets[np.flatnonzero(np.diff(offsets, prepend=-1))]  # without empty lists
    starts, lists = offsets[:-1], len(offsets) - 1
    x, of = values.astype(np.float64), list_numbers(len(values), offsets[:-1])
    known = ~(np.isnan(x) | added)
    found = np.cumsum(known)
    counted = known & (found - (found - known)[starts][of] <= depth)
    count = np.bincount(of, counted, lists)
    mean = np.bincount(of, np.where(counted, x, 0), lists) / np.maximum(count, 1)
    off = x - mean[of]
    deviation = np.sqrt(np.bincount(of, np.where(counted, off, 0) ** 2, lists) / np.maximum(count, 1))
    lowest = np.minimum.reduceat(np.where(counted, x, np.inf), starts)
    highest = np.maximum.reduceat(np.where(counted, x, -np.inf), starts)
    varies = (count > 0) & (lowest < highest)  # a deviation may be above 0 by rounding alone
    z = np.where(varies[of], off / np.where(varies, deviation, 1)[of], 0)
    least = np.minimum.reduceat(np.where(known, z, np.inf), starts)
    z = np.fmax(z, np.where(varies, least, 0)[of])  # what is NaN is the lowest, too
    return np.clip(z, -LARGEST, LARGEST).astype(np.float32)
