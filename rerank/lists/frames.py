"""Lists in memory, from data frames."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from rerank.collections import Qrels, Query
from rerank.collections.base import checked_id, checked_text
from rerank.collections.queries import HIGHEST
from rerank.collections.records import NAMES, found_columns, read_csv, read_json_objects, some_names
from rerank.errors import UserError
from rerank.lists.columns import Column, as_column, grouped
from rerank.lists.judged import check_documents, check_queries, judged_documents
from rerank.lists.layout import CANDIDATES, ENDS, candidates_hash
from rerank.lists.store import Store
from rerank.lists.writer import Judgments
from rerank.progress import log
from rerank.storage.arrow import Array, flat_batch, starts_of
from rerank.storage.files import open_parquet, plain_name

if TYPE_CHECKING:
    import pandas as pd


FIELDS = some_names("query_id", "doc_id", "query", "text", "grade", "rank")
"""What a frame has beside columns of numbers."""

TEXT_OF = {"query_id": "query", "doc_id": "text"}
"""The texts that ids are made from."""

IDS = {*NAMES["query_id"], *NAMES["doc_id"], "id", "", "index", "level_0", "Unnamed: 0"}
"""Columns that are no scores or features, whatever they hold: ids, and the index that pandas makes a column."""

FEW = 5
"""Neighbours in lists that have to look like ranks before one can tell."""

MISSING = {"", "na", "n/a", "#n/a", "nan", "<na>", "null", "none"}
"""How files write, in small letters, that there is no number."""

EXACT = 1 << 24
"""Up to here float32 holds every whole number."""

RIGHT = '{"query": "…", "text": "…", "grade": 1, "bm25": 9.5}'


class NamedFrame(NamedTuple):
    """A data frame with our names for the fields that it has; its index is what messages call the rows."""

    frame: pd.DataFrame
    called: Mapping[str, str]
    name: str
    place: str

    def where(self, row: int) -> str:
        return f"{self.place}{self.frame.index[row]}"

    def rows(self, chosen: Array) -> NamedFrame:
        return self._replace(frame=self.frame.iloc[chosen])

    @property
    def grades(self) -> Array | None:
        """The grade of every row, ``[n]`` float64, NaN where there is none; None where there are none at all."""
        return self.frame["grade"].to_numpy() if "grade" in self.frame.columns else None


def as_table(given: Any, columns: Mapping[str, str] | None = None, name: str | None = None) -> NamedFrame:
    """A table of what people have, for :func:`store_of`; see :meth:`rerank.lists.view.Lists.from_dataframe`."""
    import pandas as pd

    source = name or (str(given) if isinstance(given, str | Path) else "data frame")
    place = f"{source}: row "
    if isinstance(given, str | Path):
        frame, place = _read(Path(given))
    elif isinstance(given, pa.Table):
        frame = given.to_pandas(integer_object_nulls=True)
    elif hasattr(given, "to_pandas"):
        frame = given.to_pandas()
    elif isinstance(given, pd.DataFrame):
        frame = given
    elif isinstance(given, Mapping | list):
        try:
            frame = pd.DataFrame(given)
        except (ValueError, TypeError) as error:
            raise UserError(f"{source}: is not a table ({error}); give columns of one length, or rows") from error
    else:
        kind = type(given).__name__
        raise UserError(f"{source}: {kind} is not a table; give a data frame, a dictionary, a data set or a file")
    if not len(frame):
        raise UserError(f"{source}: has no rows; expected one per candidate")
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    told = columns if isinstance(columns, Mapping) else {}
    ids = {one for field in TEXT_OF for one in (*NAMES[field], told.get(field)) if one is not None}
    in_index = [level for level in frame.index.names if level in ids and level not in frame.columns]
    frame = frame.reset_index(in_index) if in_index else frame
    if not frame.index.is_unique:
        frame = frame.reset_index(drop=True)
    called = found_columns(list(frame.columns), FIELDS, columns, source)
    hidden = [field for field, column in called.items() if column != field and field in frame.columns]
    frame = frame.drop(columns=hidden).rename(columns={column: field for field, column in called.items()})
    return NamedFrame(_one_a_row(frame, place), called, source, place)


def _one_a_row(frame: pd.DataFrame, place: str) -> pd.DataFrame:
    """Rows that hold lists (of documents, their grades, scores) as a row per entry."""

    def size(value: object) -> int:
        return len(value) if isinstance(value, list | tuple | np.ndarray) else -1

    sizes = {column: frame[column].map(size) for column in frame.columns if frame[column].dtype == object}
    lists = [column for column, found in sizes.items() if (found >= 0).any()]
    fields = [column for column in lists if column in ("doc_id", "text", "grade")]
    if not fields:
        return frame
    for column in list(lists):
        same = (sizes[column] >= 0) & (sizes[column] == sizes[fields[0]])
        if column in fields and not same.all():
            row = frame.index[int(np.argmin(same.to_numpy()))]
            raise UserError(f"{place}{row}: {fields[0]} and {column} are not lists of one length")
        if not same.all():
            lists.remove(column)  # such as vectors
    return frame.explode(lists)


def _read(path: Path) -> tuple[pd.DataFrame, str]:
    """A file as a frame whose index has the numbers of its lines or rows, and what stands before those in messages."""
    import pandas as pd

    match plain_name(path).suffix:
        case ".parquet":
            with open_parquet(path) as file:
                frame = file.read().to_pandas(integer_object_nulls=True)
            if kept := [name for name in frame.index.names if name is not None and name not in frame.columns]:
                frame = frame.reset_index(kept)  # an index that pandas wrote
            return frame.set_axis(range(1, len(frame) + 1)), f"{path}: row "
        case ".csv" | ".tsv":
            rows = read_csv(path)
            header = [cell.strip() for cell in next(rows, (0, [""]))[1]]
            lines = dict(rows)
            return pd.DataFrame(list(lines.values()), index=list(lines), columns=header, dtype=object), f"{path}:"
        case ".jsonl":
            records = dict(read_json_objects(path, RIGHT, strict=True))
            return pd.DataFrame(list(records.values()), index=list(records), dtype=object), f"{path}:"
    raise UserError(f"{path}: cannot tell the format; the name must end in .parquet, .csv, .tsv or .jsonl")


def store_of(table: NamedFrame, qrels: Qrels | None = None) -> Store:
    """Lists in memory, for :meth:`rerank.lists.view.Lists.from_dataframe`.

    Rows are sorted by ``rank`` where there is one; else what ordered the lists is the first column of a single number
    by which they are sorted as they come, best first, or nothing. Rows of a query may be scattered; queries keep the
    order in which they come first.
    """
    table = _each_once(_with_grades(_identified(table)))
    codes, queries = table.frame["query_id"].factorize()
    together = np.argsort(codes, kind="stable")
    codes, table = codes[together], table.rows(together)
    documents, known = table.frame["doc_id"].factorize()
    columns = _columns(table, codes)
    ordered_by, best_first = _ordered(columns, codes, table.name)
    documents, table = documents[best_first], table.rows(best_first)
    columns = {key: replace(column, values=column.values[best_first]) for key, column in columns.items()}
    tables = {"queries": _texts(table, "query_id", queries, codes)}
    tables["documents"] = _texts(table, "doc_id", known, documents)
    judgments: Judgments | None = None
    grades, given = np.zeros(len(codes), np.int16), table.grades
    if qrels is not None:
        judgments, grades = "qrels.trec", _judged(table, qrels, tables, codes, documents)
    elif given is not None:
        grades = np.maximum(np.nan_to_num(given), 0).astype(np.int16)
        judgments = "grades"
        if not (given >= 0).all():  # what is unjudged, or judged below 0, is known to judgments alone
            judgments, qrels = "qrels.trec", {}
            for i in np.flatnonzero(~np.isnan(given)):
                qrels.setdefault(queries[codes[i]], {})[known[documents[i]]] = int(given[i])
    if judgments is not None and (grades > 0).all():
        log.warning(
            "%s: every candidate has a grade above 0, so that any order is perfect to AP, RR and the like; 0 is for "
            "what is not relevant",
            table.name,
        )
    lengths = np.bincount(codes, minlength=len(queries))
    manifest = {"collection": {"name": table.name, "fingerprint": ""}, "retriever": {}, "order": ordered_by}
    return _memory(manifest, tables, lengths, documents, grades, columns, qrels, judgments)


def _ordered(columns: Mapping[str, Column], codes: Array, name: str) -> tuple[str | None, Array]:
    """The column that ordered the lists, and which rows come one after the other, best first."""
    as_they_come = np.arange(len(codes))
    single = {key: column.values[:, 0] for key, column in columns.items() if column.names == (key,)}
    sorted_by = {key: np.lexsort((-values, codes)) for key, values in single.items()}  # stable, NaN last
    if "rank" in sorted_by:
        return "rank", sorted_by["rank"]
    within = codes[1:] == codes[:-1]  # lists of several candidates, which a constant does not sort
    for key, rows in sorted_by.items():
        differs = single[key][1:] != single[key][:-1]
        if (rows == as_they_come).all() and (differs[within].any() or not within.any()):
            return key, as_they_come
    if single:
        log.warning(
            "%s: rows are not sorted by %s, so nothing counts as the first stage; sort the rows of each query by the "
            "column that ranked them, best first, or give columns={'rank': …}",
            *(name, " or ".join(single)),
        )
    return None, as_they_come


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
        "judgments": judgments,
        "candidates": candidates_hash(tables["queries"], tables["documents"], tables["candidates"]),
    }
    return Store(manifest, tables=tables, columns=columns, qrels=qrels)


def _identified(table: NamedFrame) -> NamedFrame:
    """A table with checked ids and texts; ids that are left out are made from the texts."""
    there = ", ".join(map(str, table.frame.columns))
    for id, text in TEXT_OF.items():
        if id not in table.called and text not in table.called:
            raise UserError(
                f"{table.name}: has no column {id}, and no {text} to make ids of; there are {there}; name it "
                f"with columns={{{text!r}: …}}"
            )
    given = [text for text in TEXT_OF.values() if text in table.called]
    if len(given) == 1:
        lacking = next(text for text in TEXT_OF.values() if text not in given)
        raise UserError(f"{table.name}: has {given[0]}, but no {lacking}; texts need both")
    texts = {text: [checked_text(*cell) for cell in _cells(table, text)] for text in given}
    for text, values in texts.items():
        if empty := sum(not value.strip() for value in values):
            log.warning("%s: %d rows have an empty %s (kept)", table.name, empty, table.called[text])
    ids = {
        id: [checked_id(*cell) for cell in _cells(table, id)] if id in table.called else _made(id[0], texts[text])
        for id, text in TEXT_OF.items()
    }
    strings = {name: np.array(values, dtype=object) for name, values in (ids | texts).items()}
    return table._replace(frame=table.frame.assign(**strings))


def _cells(table: NamedFrame, field: str) -> Iterator[tuple[object, str]]:
    """The values of a field with their places; refused where one is missing."""
    column, called = table.frame[field], table.called[field]
    if (missing := column.isna().to_numpy()).any():
        raise UserError(f"{table.where(int(missing.argmax()))}: no {called}; give one, or leave the row out")
    rows = zip(table.frame.index, column.tolist(), strict=True)
    return ((value, f"{table.place}{row}: {called}") for row, value in rows)


def _made(letter: str, texts: list[str]) -> list[str]:
    hashes = {text: hashlib.sha256(text.encode()).hexdigest() for text in set(texts)}
    return [f"{letter}{hashes[text][:16]}" for text in texts]


def _with_grades(table: NamedFrame) -> NamedFrame:
    """A table with checked grades, as numbers, or without them where all are missing."""
    if "grade" not in table.called:
        return table
    given = table.frame["grade"]
    values, wrong = _numbers(given)
    wrong |= (np.nan_to_num(values) % 1 != 0) | (np.abs(values) > HIGHEST)
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(
            f"{table.where(row)}: grade {str(given.iloc[row])!r}; expected whole numbers up to {HIGHEST}, or "
            "a column of another name"
        )
    rest = table.frame.drop(columns="grade")
    return table._replace(frame=rest if np.isnan(values).all() else rest.assign(grade=values))


def _each_once(table: NamedFrame) -> NamedFrame:
    """A table without rows that repeat a text of their list; refused where grades differ, or ids repeat."""
    codes, queries = table.frame["query_id"].factorize()
    documents, known = table.frame["doc_id"].factorize()
    _, first, pair = np.unique(codes * len(known) + documents, return_index=True, return_inverse=True)
    first, rows = first[pair], np.arange(len(pair))
    again = np.flatnonzero(first < rows)
    if not len(again):
        return table
    called, grades = table.called, table.grades
    advice = f"keep one of them, as drop_duplicates({[called.get(id, called.get(TEXT_OF[id])) for id in TEXT_OF]}) does"
    if "doc_id" in called:
        row, other = int(again[0]), int(first[again[0]])
        raise UserError(
            f"{table.where(row)}: document {known[documents[row]]!r} a second time for query {queries[codes[row]]!r}, "
            f"as in row {table.frame.index[other]}; {advice}"
        )
    if grades is not None:
        for row, other in zip(again.tolist(), first[again].tolist(), strict=True):
            if grades[row] == grades[other] or (np.isnan(grades[row]) and np.isnan(grades[other])):
                continue
            raise UserError(
                f"{table.where(row)}: has the {called['text']} of row {table.frame.index[other]} for this query, but "
                f"another grade ({grades[row]:g}, {grades[other]:g}); {advice}"
            )
    log.warning(
        "%s: %d rows repeat the %s and %s of an earlier one, such as row %s of row %s; left out",
        *(table.name, len(again), called.get("query_id", called["query"]), called["text"]),
        *(table.frame.index[int(again[0])], table.frame.index[int(first[again[0]])]),
    )
    return table.rows(rows[first == rows])


def _judged(table: NamedFrame, qrels: Qrels, tables: Mapping[str, pa.Table], codes: Array, documents: Array) -> Array:
    """The grades of all candidates by judgments, which have to be of these queries and documents."""
    queries, known = tables["queries"].column("query_id").to_pylist(), tables["documents"].column("doc_id").to_pylist()
    judged_ids = {"query_id": set(qrels), "doc_id": {id for judged in qrels.values() for id in judged}}
    if not judged_ids["doc_id"]:
        raise UserError(f"{table.name}: the qrels hold no judgments")
    for field, ids in (("query_id", queries), ("doc_id", known)):
        if field not in table.called and judged_ids[field].isdisjoint(ids):
            raise UserError(f"{table.name}: has no column {field}, so nothing says which one a judgment is of; add it")
    texts = tables["queries"].column(-1).to_pylist()
    check_queries([Query(*pair) for pair in zip(queries, texts, strict=True)], qrels, table.name)
    judged = judged_documents(qrels, queries)
    check_documents(judged, judged.keys() - known, table.name, whole=False)
    pairs = zip(codes.tolist(), documents.tolist(), strict=True)
    grades = np.array([max(0, qrels.get(queries[q], {}).get(known[d], 0)) for q, d in pairs], np.int16)
    if (given := table.grades) is not None and (differ := ~np.isnan(given) & (np.maximum(given, 0) != grades)).any():
        row = int(differ.argmax())
        raise UserError(
            f"{table.where(row)}: {table.called['grade']} {given[row]:g}, but {grades[row]} by the qrels; leave out one"
        )
    return grades


def _texts(table: NamedFrame, key: str, ids: list[str], codes: Array) -> pa.Table:
    there = pa.table({key: pa.array(ids, pa.string())})
    if TEXT_OF[key] not in table.called:
        return there
    texts, (_, first) = table.frame[TEXT_OF[key]].tolist(), np.unique(codes, return_index=True)
    for row, code in enumerate(codes.tolist()):
        if texts[row] != texts[first[code]]:
            raise UserError(
                f"{table.where(row)}: {table.called.get(key, key)} {ids[code]!r} has another "
                f"{table.called[TEXT_OF[key]]} than in row {table.frame.index[first[code]]}; each id may have one"
            )
    return there.append_column("text", pa.array([texts[row] for row in first.tolist()], pa.string()))


def _columns(table: NamedFrame, codes: Array) -> dict[str, Column]:
    """What is left of a frame as columns, ``NAME/NUMBER`` and others of that name as one."""
    from pandas.api.types import is_integer_dtype

    left_out, single, grades = [], {}, table.grades
    for key in table.frame.columns:
        if key in FIELDS and key != "rank":
            continue
        values, wrong = _numbers(table.frame[key])
        there = wrong | ~np.isnan(values)
        if key in IDS or 2 * wrong.sum() > there.sum():
            left_out.append(key or "(one without a name)")
            continue
        if wrong.any():
            row = int(wrong.argmax())
            shown = str(table.frame[key].iloc[row])[:50]
            raise UserError(f"{table.where(row)}: {key} {shown!r} is no number, as others of this column are")
        if key == "rank" and (values[there] > 0).any() and (values[there] < 0).any():
            raise UserError(
                f"{table.name}: {table.called['rank']} has numbers above and below 0; ranks count from the best (0 or "
                "1), and are empty for what a system did not return"
            )
        if key == "rank" and (values[there] >= 0).all():
            log.info("%s: %s counts from the best and is kept as its negative", table.name, table.called["rank"])
            values = -values
        elif counts_from_the_best(values[there], codes[there], None if grades is None else grades[there]):
            raise UserError(
                f"{table.name}: column {key} looks like ranks, which count from the best (0 or 1) in every list; in a "
                f"column higher is better: give columns={{'rank': {key!r}}}, or make it negative"
            )
        single[key] = as_column(key, values)
        if there.any() and EXACT < np.abs(values[there]).max() < 2**63 and not (values[there] % 1).any():
            given = table.frame[key][there]  # whole numbers may be one as float64 already
            as_column(key, (given.to_numpy() if is_integer_dtype(given.dtype) else values[there]).astype(np.int64))
    if left_out:
        log.warning("%s: columns left out, as texts, ids or row numbers: %s", table.name, ", ".join(left_out))
    columns = {}
    for column, keys in grouped(single, table.name).items():
        numbers = tuple(key.partition("/")[2] or key for key in keys)
        values = np.concatenate([single[key] for key in keys], axis=1)
        columns[column] = Column(values, numbers, {"data frame": table.name})
    return columns


def _numbers(given: pd.Series) -> tuple[Array, Array]:
    """A column as numbers, ``[n]`` float64 with NaN where there is none, and which of its values are none, ``[n]``."""
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    wrong = np.zeros(len(given), dtype=bool)
    if is_numeric_dtype(given.dtype) and not is_complex_dtype(given.dtype):
        return given.to_numpy(dtype=np.float64, na_value=np.nan), wrong
    numbers = np.full(len(given), np.nan)
    for i, (value, missing) in enumerate(zip(given.tolist(), given.isna().tolist(), strict=True)):
        if missing or (isinstance(value, str) and value.strip().lower() in MISSING):
            continue
        try:
            wrong[i] = not isinstance(value, str | Real | Decimal) or (isinstance(value, str) and "_" in value)
            numbers[i] = np.nan if wrong[i] else float(value)
        except (ValueError, OverflowError):
            wrong[i] = True
    return numbers, wrong


def counts_from_the_best(values: Array, codes: Array, grades: Array | None) -> bool:
    """Whether numbers look like ranks: in every list distinct whole numbers from 0 or 1, the lower the better.

    The lower is the better where they ascend with the rows, or are as many as the list is long and are not the lower
    for what is not relevant. A few numbers look like anything. ``codes`` are the numbers of the lists, ascending.
    """
    if not len(values) or not np.isfinite(values).all() or (values < 0).any() or (values % 1).any():
        return False
    in_order, within = values[np.lexsort((values, codes))], np.diff(codes) == 0
    steps, lowest = np.diff(in_order)[within], in_order[starts_of(codes)]
    if len(steps) < FEW or (steps < 1).any() or (lowest > 1).any():
        return False
    along = np.diff(values)[within]
    if (along > 0).all() or (steps > 1).any() or (along < 0).all():
        return bool((along > 0).all())
    relevant = np.zeros(len(values), dtype=bool) if grades is None else grades > 0
    return bool(relevant.all() or not relevant.any() or values[relevant].mean() < values[~relevant].mean())
