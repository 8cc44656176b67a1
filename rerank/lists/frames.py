"""Lists in memory, from data frames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rerank import __version__
from rerank.arrow import Array, flat_batch
from rerank.collections import Qrels
from rerank.collections.judgments import FIELDS, found_columns
from rerank.errors import NotFoundError, UserError
from rerank.files import plain_name
from rerank.lists.columns import Column, as_column, grouped
from rerank.lists.digests import candidates_hash
from rerank.lists.layout import CANDIDATES, ENDS, VERSION
from rerank.lists.store import Store
from rerank.lists.writer import Judgments

if TYPE_CHECKING:
    import pandas as pd

IDS = ("query_id", "doc_id")
TEXTS = ("query", "text")
GRADE = "grade"


NAMES: dict[str, tuple[str, ...]] = {
    "query_id": FIELDS["query_id"],
    "doc_id": FIELDS["doc_id"],
    "query": ("query", "question", "anchor"),
    "text": ("text", "passage", "document", "answer", "docs"),
    "grade": ("grade", "relevance", "label", "labels"),
}
"""What fields are called in the data frames of others, ours first."""


def as_frame(given: Any, columns: Mapping[str, str] | None = None, name: str = "data frame") -> pd.DataFrame:
    """A data frame with our names, for :func:`store_of`; see :meth:`rerank.lists.view.Lists.from_dataframe`."""
    import pandas as pd

    if isinstance(given, str | Path):
        frame = _read(Path(given))
    elif hasattr(given, "to_pandas"):
        frame = given.to_pandas()
    elif isinstance(given, pd.DataFrame):
        frame = given
    elif isinstance(given, Mapping | list):
        try:
            frame = pd.DataFrame(given)
        except ValueError as error:
            raise UserError(
                f"{name}: is not a table ({error}); give columns of one length, or a list of rows"
            ) from error
    else:
        kind = type(given).__name__
        raise UserError(f"{name}: {kind} is not a table; give a data frame, a dictionary, a data set or a file")
    there = list(map(str, frame.columns))
    frame = frame.set_axis(there, axis=1)
    found = found_columns(there, NAMES, columns, name)
    frame = frame.rename(columns={column: field for field, column in found.items()})
    lists = [field for field in ("doc_id", "text", "grade") if field in frame and _holds_lists(frame[field])]
    if lists:
        try:
            frame = frame.explode(lists, ignore_index=True)
        except ValueError as error:
            raise UserError(f"{name}: {', '.join(lists)}: {error}") from error
    if not {*IDS} & {*frame.columns} and {*TEXTS} <= {*frame.columns}:
        for key, text in zip(IDS, TEXTS, strict=True):
            codes = pd.factorize(frame[text].fillna("").astype(str))[0]
            frame = frame.assign(**{key: [f"{key[0]}{code + 1}" for code in codes]})
    return frame


def _holds_lists(column: pd.Series) -> bool:
    return len(column) > 0 and isinstance(column.iloc[0], list | tuple | np.ndarray)


def _read(path: Path) -> pd.DataFrame:
    import pandas as pd

    if not path.is_file():
        raise NotFoundError(f"{path}: no such file")
    match plain_name(path).suffix:
        case ".parquet":
            return pd.read_parquet(path)
        case ".csv" | ".tsv" as suffix:
            return pd.read_csv(path, sep="\t" if suffix == ".tsv" else ",", dtype=dict.fromkeys(IDS, str))
        case ".jsonl":
            return pd.read_json(path, lines=True, dtype=dict.fromkeys(IDS, str))
    raise UserError(f"{path}: cannot tell the format; the name must end in .parquet, .csv, .tsv or .jsonl")


def store_of(frame: pd.DataFrame, qrels: Qrels | None = None, name: str = "data frame") -> Store:
    """Lists in memory, for :meth:`rerank.lists.view.Lists.from_dataframe`.

    >>> import pandas as pd
    >>> store = store_of(pd.DataFrame({
    ...     "query_id": ["q1", "q1", "q2"], "doc_id": ["a", "b", "a"], "grade": [1, 0, 0], "bm25": [9.5, 7.0, 3.0]}))
    >>> store.ends.tolist(), store.column("bm25").tolist(), store.grades.tolist(), store.order
    ([2, 3], [9.5, 7.0, 3.0], [1, 0, 0], 'bm25')

    Args:
        frame: a row per candidate, in the order of the lists: ``query_id`` and ``doc_id``; ``query`` and ``text``
            (both, or neither); ``grade`` (whole numbers; missing ones are unjudged, negative ones count as 0; where all
            are missing, nothing is judged). Every other column of numbers becomes a column of the lists, those called
            ``NAME/NUMBER`` one column together; missing values are NaN there. The first column of a single number is
            taken for what ordered the lists. Rows of a query may be scattered; queries keep the order in which they
            come first.
        qrels: all judgments; None takes the grades for them, where there are any.
        name: what messages call the lists.

    Raises:
        UserError: a column that is missing or of another type, a document that a query has twice, two texts of one id.
    """
    import pandas as pd

    for needed in IDS:
        if needed not in frame.columns:
            raise UserError(f"{name}: has no column {needed}; there are {', '.join(map(str, frame.columns))}")
    texts = [column for column in TEXTS if column in frame.columns]
    if len(texts) == 1:
        raise UserError(f"{name}: has {texts[0]}, but no {(set(TEXTS) - set(texts)).pop()}; texts need both")
    codes, ids = pd.factorize(frame["query_id"].astype(str))
    order = np.argsort(codes, kind="stable")
    frame, codes = frame.iloc[order], codes[order]
    documents, doc_ids = pd.factorize(frame["doc_id"].astype(str))
    if len(twice := np.flatnonzero(pd.DataFrame({"q": codes, "d": documents}).duplicated())):
        row = int(order[twice[0]])
        raise UserError(f"{name}: row {row} has document {doc_ids[documents[twice[0]]]!r} a second time for its query")
    columns = _columns(frame.drop(columns=[*IDS, *TEXTS, GRADE], errors="ignore"), name)
    judgments: Judgments | None = None if qrels is None else "qrels.trec"
    grades = np.zeros(len(frame), np.int16)
    if GRADE in frame.columns and (qrels is not None or frame[GRADE].notna().any()):
        grades = _grades(frame[GRADE], name)
        judgments = judgments or "grades"
    elif qrels is not None:
        names = zip(ids[codes], doc_ids[documents], strict=True)
        grades = np.array([max(0, qrels.get(query, {}).get(document, 0)) for query, document in names], np.int16)
    tables = {
        "queries": _texts("query_id", ids, frame["query"] if texts else None, codes, name),
        "documents": _texts("doc_id", doc_ids, frame["text"] if texts else None, documents, name),
    }
    lengths = np.bincount(codes, minlength=len(ids))
    single = (key for key, column in columns.items() if column.names == (key,))
    manifest = {"collection": {"name": name, "fingerprint": ""}, "retriever": {}, "order": next(single, None)}
    return _memory(manifest, tables, lengths, documents, grades, columns, qrels, judgments)


def memory_store(name: str, lengths: Array, columns: dict[str, Column]) -> Store:
    """A store of columns alone: lists of these lengths, whose documents go by the numbers of their rows."""
    count = int(lengths.sum())
    tables = {
        "queries": pa.table({"query_id": pa.array([f"q{i + 1}" for i in range(len(lengths))], pa.string())}),
        "documents": pa.table({"doc_id": pa.array(map(str, range(1, count + 1)), pa.string())}),
    }
    manifest = {"collection": {"name": name, "fingerprint": ""}, "retriever": {}, "order": None}
    return _memory(manifest, tables, lengths, np.arange(count), np.zeros(count, np.int16), columns, None, None)


def _memory(
    manifest: dict[str, Any],
    tables: dict[str, pa.Table],
    lengths: Array,
    documents: Array,
    grades: Array,
    columns: dict[str, Column],
    qrels: Qrels | None,
    judgments: Judgments | None,
) -> Store:
    """A store in memory, with what its tables and its manifest say of themselves."""
    queries = np.repeat(np.arange(len(lengths)), lengths)
    rows = {"query": queries, "document": documents, "grade": grades, "added": np.zeros(len(documents))}
    ends = {"end": np.cumsum(lengths), "added": np.zeros(len(lengths))}
    for name, schema, arrays in (("candidates", CANDIDATES, rows), ("ends", ENDS, ends)):
        typed = {field.name: arrays[field.name].astype(field.type.to_pandas_dtype()) for field in schema}
        tables[name] = pa.Table.from_batches([flat_batch(schema, typed)])
    manifest |= {
        "version": VERSION,
        "rerank": __version__,
        "judgments": judgments,
        "counts": {"queries": len(lengths), "documents": tables["documents"].num_rows, "pairs": len(documents)},
        "candidates": candidates_hash(tables["queries"], tables["documents"], tables["candidates"]),
    }
    return Store(manifest, tables=tables, columns=columns, qrels=qrels)


def _columns(frame: pd.DataFrame, name: str) -> dict[str, Column]:
    """What is left of a data frame as columns, ``NAME/NUMBER`` and others of that name as one."""
    import pandas as pd

    frame = frame.set_axis(map(str, frame.columns), axis=1)
    for key in frame.columns:
        if frame[key].isna().all():  # nothing but nulls, of which JSON does not say that they were numbers
            frame[key] = np.nan
        if not pd.api.types.is_numeric_dtype(frame[key]):
            raise UserError(f"{name}: column {key} holds no numbers; drop it, or make numbers of it")
    columns = {}
    for column, keys in grouped(frame.columns, name).items():
        values = [as_column(key, frame[key].to_numpy(dtype=np.float64, na_value=np.nan)) for key in keys]
        numbers = tuple(key.partition("/")[2] or key for key in keys)
        columns[column] = Column(np.concatenate(values, axis=1), numbers, {"data frame": name})
    return columns


def _grades(given: pd.Series, name: str) -> Array:
    import pandas as pd

    numbers = pd.to_numeric(given, errors="coerce")
    values = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = (given.notna() & numbers.isna()).to_numpy() | (np.nan_to_num(values) % 1 != 0) | (np.abs(values) > 32_767)
    if wrong.any():
        shown = given.iloc[int(np.flatnonzero(wrong)[0])]
        raise UserError(
            f"{name}: grade {str(shown)!r}; expected whole numbers up to 32767, or a column of another name"
        )
    return np.maximum(np.nan_to_num(values), 0).astype(np.int16)


def _texts(key: str, ids: Any, texts: pd.Series | None, codes: Array, name: str) -> pa.Table:
    """Ids and their texts, each once."""
    table = pa.table({key: pa.array([str(id) for id in ids], pa.string())})
    if texts is None:
        return table
    import pandas as pd

    distinct = pd.DataFrame({"id": codes, "text": texts.fillna("").astype(str).to_numpy()}).drop_duplicates()
    if len(again := np.flatnonzero(distinct["id"].duplicated())):
        raise UserError(f"{name}: {key} {ids[distinct['id'].iloc[again[0]]]!r} has two texts; each id may have one")
    return table.append_column("text", pa.array(distinct.sort_values("id")["text"].tolist(), pa.string()))
