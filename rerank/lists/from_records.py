"""Lists in memory, made of records."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rerank.collections.base import Qrels, checked_id, checked_text
from rerank.collections.judgments import HIGHEST, UNSEEN, check_known
from rerank.collections.records import CANDIDATE, Records
from rerank.collections.tables import NAMES
from rerank.errors import UserError, nearest
from rerank.lists.columns import RESERVED, Column, as_column, grouped
from rerank.lists.store import Store, memory_store
from rerank.progress import log
from rerank.storage.arrow import Array

if TYPE_CHECKING:
    import pandas as pd

TEXT_OF = {"query_id": "query", "doc_id": "text"}
"""The texts that ids are made from."""

IDS = {*NAMES["query_id"], *NAMES["doc_id"], "id", "", "index", "level_0", "Unnamed: 0"}
"""Columns that are not scores, even if they are numbers: ids, and the index that pandas makes a column."""

NUMBERS = ("grade", "rank", "score")

MISSING = ("", "na", "n/a", "#n/a", "nan", "<na>", "null", "none")
"""Words, in small letters, that files write for a missing number."""


def store_of(records: Records, qrels: Qrels | None = None, order: str | None = None) -> Store:
    """Make lists of records, see :meth:`rerank.lists.view.Lists.from_dataset`.

    Rows of a query may be scattered; queries keep the order of their first rows. The column that ordered the lists is
    ``order``, else ``score``, else ``rank``, else the first single number by which the rows of every query are sorted.
    """
    records = _each_once(_identified(records))
    given, columns = _numbers(records)
    codes, queries = records.frame["query_id"].factorize()
    ordered_by, rows = _ordered(columns, codes, order, records.name)
    records, given = records._replace(frame=records.frame.iloc[rows]), None if given is None else given[rows]
    columns = {name: replace(column, values=column.values[rows]) for name, column in columns.items()}
    codes = codes[rows]
    documents, known = records.frame["doc_id"].factorize()
    tables = {"queries": _table(records, "query_id", codes), "documents": _table(records, "doc_id", documents)}
    if records.without:
        more = {"query_id": list(records.without), "text": list(records.without.values())}
        tables["queries"] = pa.concat_tables([tables["queries"], pa.table(more)], promote_options="default")
    grades, by_grades = np.zeros(len(codes), np.int16), False
    if qrels is not None:
        grades = _judged(records, qrels, given, tables)
    elif given is not None:
        grades = np.maximum(np.nan_to_num(given), 0).astype(np.int16)
        by_grades = bool((given >= 0).all()) and not records.without
        if not by_grades:  # unjudged or negative: only separate judgments can say so
            qrels = {}
            for i in np.flatnonzero(~np.isnan(given)):
                qrels.setdefault(queries[codes[i]], {})[known[documents[i]]] = int(given[i])
    lengths = np.bincount(codes, minlength=len(queries) + len(records.without))
    _warn(records.name, grades, by_grades or qrels is not None, lengths)
    return memory_store(records.name, tables, lengths, documents, grades, columns, ordered_by, qrels, by_grades)


def _warn(name: str, grades: Array, judged: bool, lengths: Array) -> None:
    if judged and (grades > 0).all():
        log.warning(
            "%s: every candidate has a grade above 0, so any order is perfect for AP, RR and the like; give "
            "documents that are not relevant the grade 0",
            name,
        )
    if lengths.max() == 1 and len(lengths) > 1:
        log.warning("%s: every list has one candidate, so nothing can be ranked; add negatives, or retrieve some", name)
    if empty := int((lengths == 0).sum()):
        log.warning("%s: %d queries without candidates (they score 0)", name, empty)


def _identified(records: Records) -> Records:
    """Check ids and texts; make ids of the texts where there are none."""
    frame, called = records.frame, records.called
    given = [text for text in TEXT_OF.values() if text in called]
    if len(given) == 1:
        lacking = next(text for text in TEXT_OF.values() if text not in given)
        raise UserError(f"{records.name}: has {called[given[0]]}, but no {lacking}; texts need both")
    values: dict[str, list[str]] = {}
    for field in (field for field in (*TEXT_OF, *given, "instruction") if field in called):
        missing = frame[field].isna()
        if missing.any() and field != "instruction":
            raise UserError(f"{records.where(missing.argmax())}: no {called[field]}; give one, or leave the row out")
        check = checked_id if field in TEXT_OF else checked_text
        cells = frame[field].mask(missing, "").tolist()
        values[field] = [check(cell, f"{records.where(i)}: {called[field]}") for i, cell in enumerate(cells)]
    for text in given:
        if empty := sum(not value.strip() for value in values[text]):
            log.warning("%s: %d rows have an empty %s (kept)", records.name, empty, called[text])
    if "query_id" not in values:  # a text with another instruction is another query
        pairs = zip(values["query"], values.get("instruction", [""] * len(frame)), strict=True)
        values["query_id"] = _made("q", [f"{text}\0{more}" if more else text for text, more in pairs])
    if "doc_id" not in values:
        values["doc_id"] = _made("d", values["text"])
    strings = {name: np.array(cells, dtype=object) for name, cells in values.items()}
    return records._replace(frame=frame.assign(**strings))


def _made(letter: str, texts: list[str]) -> list[str]:
    hashes = {text: hashlib.sha256(text.encode()).hexdigest() for text in set(texts)}
    return [f"{letter}{hashes[text][:16]}" for text in texts]


def _each_once(records: Records) -> Records:
    """Leave out rows that repeat a text of their list, as examples do; refuse other grades, or ids that repeat."""
    frame, called = records.frame, records.called
    again = frame.duplicated(["query_id", "doc_id"]).to_numpy()
    if not again.any():
        return records
    row = int(again.argmax())
    if "doc_id" in called and not records.examples:
        query, document = frame["query_id"].iloc[row], frame["doc_id"].iloc[row]
        raise UserError(f"{records.where(row)}: document {document!r} a second time for query {query!r}; keep one row")
    if "grade" in frame:
        graded = frame.assign(grade=_floats(frame["grade"])[0])
        if (differ := again & ~graded.duplicated(["query_id", "doc_id", "grade"]).to_numpy()).any():
            where, text = records.where(int(differ.argmax())), called.get("text", "document")
            raise UserError(f"{where}: has the {text} of an earlier row of its query, but another grade; keep one")
    log.warning("%s: %d rows repeat a document of their query and were left out", records.name, int(again.sum()))
    return records._replace(frame=frame[~again])


def _numbers(records: Records) -> tuple[Array | None, dict[str, Column]]:
    """Read grades, ``[T]``, and turn other numbers into columns, ``NAME/NUMBER`` and others of that name as one."""
    from pandas.api.types import is_numeric_dtype

    frame, called = records.frame, records.called
    grades, left_out, single = None, [], dict[str, Array]()
    for key in frame.columns:
        if key in CANDIDATE and key not in NUMBERS:
            continue
        values, wrong = _floats(frame[key])
        known = values[~np.isnan(values)]
        if key in IDS or (key not in NUMBERS and wrong.any() and wrong.sum() >= len(known)):
            left_out.append(key or "(one without a name)")
        elif wrong.any():
            row = int(wrong.argmax())
            shown = str(frame[key].iloc[row])[:50]
            raise UserError(f"{records.where(row)}: {called.get(key, key)} {shown!r} is not a number, as others are")
        elif key == "grade" and not (known % 1).any():
            if (large := np.abs(values) > HIGHEST).any():
                row = int(large.argmax())
                raise UserError(f"{records.where(row)}: grade {values[row]:g}; expected {HIGHEST} at most")
            grades = values if len(known) else None
        elif len(known) or is_numeric_dtype(frame[key]):
            single |= _column(records, key, values, known)
    if left_out:
        log.warning("%s: columns left out, as they are not numbers: %s", records.name, ", ".join(left_out))
    columns = {}
    for column, keys in grouped(single, records.name).items():
        numbers = tuple(key.partition("/")[2] or key for key in keys)
        values = np.concatenate([single[key] for key in keys], axis=1)
        columns[column] = Column(values, numbers, {"records": records.name})
    return grades, columns


def _column(records: Records, key: str, values: Array, known: Array) -> dict[str, Array]:
    """Return the column of scores that a number becomes; ranks become negative."""
    name, called = records.name, records.called.get(key, key)
    if key == "grade":
        key = called
        if key in RESERVED:
            raise UserError(f"{name}: {key} has fractions; grades are whole numbers; rename it if it holds scores")
        log.warning(
            "%s: %s has fractions, so it is a column of scores and not judgments; train on it with "
            "Term(MSE(), target=%r)",
            *(name, key, key),
        )
    elif key == "rank" and (known > 0).any():
        if (known < 0).any():
            right = "ranks count from the best (0 or 1), and are missing if a system did not return the document"
            raise UserError(f"{name}: {called} has numbers above and below 0; {right}")
        log.info("%s: %s counts up from the best, so its negative is stored", name, called)
        values = -values
    if len(known) and 1 << 24 < np.abs(known).max() < 2**63 and not (known % 1).any():
        as_column(key, known.astype(np.int64))  # refuses what float32 would join
    return {key: as_column(key, values)}


def _floats(given: pd.Series) -> tuple[Array, Array]:
    """Convert a column to ``[n]`` float64, NaN where it has no number, and a mask of the values that are no numbers."""
    import pandas as pd

    missing = given.isna().to_numpy()
    if given.dtype.kind in "mM":  # times, which pandas would count in nanoseconds
        return np.full(len(given), np.nan), ~missing
    if given.dtype.kind == "O":
        lacking = given.map(lambda cell: isinstance(cell, str) and cell.strip().lower() in MISSING)
        missing = missing | lacking.to_numpy(bool)
    try:
        numbers = pd.to_numeric(given.mask(missing), errors="coerce").to_numpy(np.float64, na_value=np.nan)
    except (TypeError, ValueError, OverflowError):  # lists, complex numbers
        numbers = np.full(len(given), np.nan)
    return numbers, np.isnan(numbers) & ~missing


def _ordered(columns: Mapping[str, Column], codes: Array, order: str | None, name: str) -> tuple[str | None, Array]:
    """Choose the column that orders the lists, and sort the rows: list after list, best first."""
    rows = np.argsort(codes, kind="stable")
    single = {key: column.values[:, 0] for key, column in columns.items() if column.names == (key,)}
    if order is not None and order not in single:
        there = ", ".join(single) or "none"
        raise UserError(f"{name}: order: no column {order!r}{nearest(order, single)}; numbers: {there}")
    if order is not None and (lost := int(np.isnan(single[order]).sum())):
        raise UserError(f"{name}: order: {order} is missing in {lost} rows; name a column that all rows have")
    whole = [key for key in ("score", "rank") if key in single and not np.isnan(single[key]).any()]
    if (chosen := order or next(iter(whole), None)) is not None:
        ties = single.get("rank", np.zeros(len(codes)))
        return chosen, rows[np.lexsort((-ties[rows], -single[chosen][rows], codes[rows]))]
    within = np.diff(codes[rows]) == 0
    for key, values in single.items():
        steps, last = np.diff(values[rows])[within], np.isnan(values[rows][1:][within])  # what is missing comes last
        if ((steps <= 0) | last).all() and (not len(steps) or (steps < 0).any()):
            return key, rows
    if single:
        log.warning(
            "%s: rows are not sorted by %s, so the lists have no first stage; sort them, best first, or name a column "
            "with order=",
            *(name, " or ".join(single)),
        )
    return None, rows


def _table(records: Records, id: str, codes: Array) -> pa.Table:
    """Make the table of queries or documents; each id has one text (and instruction)."""
    frame = records.frame.iloc[np.unique(codes, return_index=True)[1]]
    table = pa.table({id: pa.array(frame[id], pa.string())})
    names = [TEXT_OF[id], *(["instruction"] if id == "query_id" else [])]
    for field in (field for field in names if field in records.called):
        cells, firsts = records.frame[field].to_numpy(), frame[field].to_numpy()
        if (differ := cells != firsts[codes]).any():
            row = int(differ.argmax())
            raise UserError(
                f"{records.where(row)}: {records.called.get(id, id)} {records.frame[id].iloc[row]!r} has another "
                f"{records.called[field]} than before; each id has one"
            )
        table = table.append_column("text" if field != "instruction" else field, pa.array(firsts, pa.string()))
    return table


def _judged(records: Records, qrels: Qrels, given: Array | None, tables: Mapping[str, pa.Table]) -> Array:
    """Return the grades of all candidates by judgments, which have to be about these queries and documents."""
    queries, known = tables["queries"]["query_id"].to_pylist(), tables["documents"]["doc_id"].to_pylist()
    if not any(qrels.values()):
        raise UserError(f"{records.name}: the qrels hold no judgments")
    for field in TEXT_OF:
        ids = set(qrels) if field == "query_id" else {id for grades in qrels.values() for id in grades}
        if field not in records.called and ids.isdisjoint(queries if field == "query_id" else known):
            raise UserError(f"{records.name}: has no column {field}, which the qrels refer to; add it")
    check_known(records.name, "judged queries", qrels, qrels.keys() - queries, min(len(qrels), len(queries)))
    judged = {id for query in queries for id in qrels.get(query, ())}
    check_known(records.name, "judged documents", judged, judged - {*known}, 1, UNSEEN)  # most are no candidates
    pairs = zip(records.frame["query_id"], records.frame["doc_id"], strict=True)
    grades = np.array([max(0, qrels.get(query, {}).get(document, 0)) for query, document in pairs], np.int16)
    if given is not None and (differ := ~np.isnan(given) & (np.maximum(given, 0) != grades)).any():
        row, called = int(differ.argmax()), records.called["grade"]
        raise UserError(f"{records.where(row)}: {called} {given[row]:g}, but {grades[row]} by the qrels; leave out one")
    return grades
