"""Read records, candidates and training examples with their texts, from any table in one of eleven shapes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rerank.collections.base import joined
from rerank.collections.tables import EXAMPLE, NAMES, find_columns, load_frame
from rerank.errors import UserError
from rerank.progress import log

if TYPE_CHECKING:
    import pandas as pd

ABOUT_QUERY = ("query_id", "query", "instruction")
EXAMPLES = ("positive", "negative", "hits")
"""Fields of rows about several candidates."""

CANDIDATE = tuple(field for field in NAMES if field not in EXAMPLES)
"""Fields of a row per candidate."""

NEEDED = (("query_id", "query"), ("doc_id", "text"))
"""A candidate has at least one field of each pair."""

TEXTS = {name for field in ("doc_id", "text", "title") for name in NAMES[field]}
NUMBERED_NEGATIVE = re.compile(r"negative_?\d+")
NESTED = ("doc", "_source", "fields")
"""Fields in which engines keep a document."""

PRIVATE = {"_id", "_score", *NESTED}
"""Fields of engines that begin with an underscore and say something about the document."""

TEACHER = "teacher"
"""The column that ``pos_scores`` and ``neg_scores`` become."""

SHAPES = {
    "a row per candidate": ("query_id", "query", "doc_id", "text", "grade", "score"),
    "query, docs, labels": ("query", "docs", "labels"),
    "anchor, positive, negative_1 … negative_n": ("anchor", "positive", "negative_1", "negative_2"),
    "query, positive, negative": ("query", "positive", "negative"),
    "query, pos, neg, pos_scores, neg_scores, prompt": ("query", "pos", "neg", "pos_scores", "neg_scores", "prompt"),
    "query, positive_passages, negative_passages": ("query", "positive_passages", "negative_passages"),
    "sentence1, sentence2, label or score": ("sentence1", "sentence2", "label", "score"),
    "query, hits": ("query_id", "query", "hits"),
}
"""Columns of each shape, with which unknown ones are compared."""


class Records(NamedTuple):
    """Candidates, a row each.

    Attributes:
        frame: the fields of `CANDIDATE` that there are by these names, then other columns, which may be numbers.
        called: the source's name of each field.
        name: its name in messages.
        without: queries without candidates, id to text.
        examples: whether rows are positives and negatives of training examples, which may repeat.
    """

    frame: pd.DataFrame
    called: Mapping[str, str]
    name: str
    without: Mapping[str, str]
    examples: bool = False

    def where(self, row: int) -> str:
        """Name a row of the frame by its row in the source."""
        return f"{self.name}: row {self.frame.index[row]}"


def read_records(
    source: Any,
    columns: Mapping[str, str] | None = None,
    name: str | None = None,
    queries: Mapping[str, str] | None = None,
) -> Records:
    """Read records of any known shape (`SHAPES`) as a row per candidate.

    Args:
        source: see `load_frame`.
        columns: the source's name of a field that has an unusual one, such as ``{"text": "passage_text"}``; it is found
            inside hits, too.
        name: its name in messages.
        queries: texts by id, of sources without texts of the queries. Other queries are left out, and those without
            candidates get empty lists.

    Raises:
        UserError: unknown columns, with those that there are and the nearest shapes; or a row that is not like others.
    """
    frame, name = load_frame(source, name)
    if not len(frame):
        raise UserError(f"{name}: has no rows; expected one per candidate or query")
    if columns is not None and not isinstance(columns, Mapping):
        raise UserError(f"{name}: columns: expected field and column, as in {{'text': 'passage'}}, not {columns!r}")
    there, named = list(frame.columns), {field: str(column) for field, column in (columns or {}).items()}
    several = find_columns(there, _names_of(EXAMPLES), {f: named.pop(f) for f in EXAMPLES if f in named}, name)
    grades: dict[str, int | None] = {several["positive"]: 1} if "positive" in several else {}
    negatives = [one for one in there if one == several.get("negative") or NUMBERED_NEGATIVE.fullmatch(one)]
    grades |= dict.fromkeys(negatives, 0)
    hits = several["hits"] if "hits" in several and frame[several["hits"]].map(_is_nested).any() else None
    text = next((one for one in NAMES["text"] if one in there and one != "answer"), None)
    marks = {"lists of hits": hits, "positives and negatives": next(iter(grades), None), "a row per candidate": text}
    marks = {shape: column for shape, column in marks.items() if column is not None}
    if len(marks) > 1:
        seen = " or ".join(f"{shape} ({column!r})" for shape, column in marks.items())
        raise UserError(f"{name}: columns fit two shapes, {seen}; leave the columns of one out")
    rows = frame
    if cells := {hits: None} if hits else grades:
        rows = _a_row_per_entry(frame, cells, named, name)
    known = list(rows.columns)
    if not all(any(one in known or field in named for field in pair for one in NAMES[field]) for pair in NEEDED):
        raise _unknown_shape(there, name)
    called = find_columns(known, _names_of(CANDIDATE), named, name)
    hidden = [field for field, column in called.items() if column != field and field in known]
    rows = rows.drop(columns=hidden).rename(columns={column: field for field, column in called.items()})
    shape = next(iter(marks), "a row per candidate")
    if lists := [field for field in ("doc_id", "text", "grade") if field in rows and rows[field].map(_is_list).any()]:
        rows, shape = _exploded(rows, lists, called, name), "a row per query"
    log.info("%s: read as %s (%s)", name, shape, ", ".join(called.values()))
    return _with_queries(Records(_with_titles(rows), called, name, {}, examples=bool(grades)), queries)


def parse_columns(words: Iterable[str]) -> dict[str, str]:
    """Parse ``FIELD=COLUMN`` words.

    >>> parse_columns(["query=question", "text=passage"])
    {'query': 'question', 'text': 'passage'}
    """
    columns: dict[str, str] = {}
    for word in words:
        field, equals, column = word.partition("=")
        if not (field and equals and column) or field in columns:
            raise UserError(f"columns: {word!r}; expected FIELD=COLUMN once a field, such as text=passage")
        columns[field] = column
    return columns


def _names_of(fields: Sequence[str]) -> dict[str, tuple[str, ...]]:
    return {field: NAMES[field] for field in fields}


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _is_nested(value: object) -> bool:
    return _is_list(value) or isinstance(value, dict)


def _is_missing(value: object) -> bool:
    return value is None or (not _is_nested(value) and value != value)


def _a_row_per_entry(
    frame: pd.DataFrame, cells: Mapping[str, int | None], named: Mapping[str, str], name: str
) -> pd.DataFrame:
    """Make a row of every positive, negative or hit in some columns, each with its grade, if it is known.

    A cell has a text, a passage or a list of them; a search engine's hits are inside another object.
    """
    import pandas as pd

    rows, places = list[dict[str, Any]](), list[Any]()
    for place, record in zip(frame.index, frame.to_dict("records"), strict=True):
        about = _about_query(record, named)
        if isinstance(query := about.get("query"), dict):  # rank_llm's requests
            about = _about_query({**query, "query": query.get("text")}, named)
        for column, grade in cells.items():
            where = f"{name}: row {place}: {column}"
            entries = list(_entries(_hits(record, column, where), where))
            scores = list(_entries(record.get(f"{column}_scores"), where)) or [None] * len(entries)
            if len(scores) != len(entries):
                raise UserError(f"{where}: {len(entries)} texts, but {len(scores)} scores")
            for entry, score in zip(entries, scores, strict=True):
                more = {"grade": grade, TEACHER: score}
                known = {key: value for key, value in more.items() if value is not None}
                rows.append({**_flat(entry, named, where), **about, **known})
                places.append(place)
    if not rows:
        raise UserError(f"{name}: no candidates in any of its rows")
    used = {"id", "type", *_about_query(dict.fromkeys(frame.columns, 0), named), *cells}
    lost = [column for column in frame.columns if column not in used and not column.endswith("_scores")]
    if lost and None not in cells.values():
        log.warning("%s: columns left out, as they are not about one candidate: %s", name, ", ".join(lost))
    return pd.DataFrame(rows, index=places, dtype=object)


def _about_query(record: Mapping[str, Any], named: Mapping[str, str]) -> dict[str, Any]:
    names = [name for field in ABOUT_QUERY for name in (*NAMES[field], named.get(field, field))]
    return {name: record[name] for name in names if not _is_missing(record.get(name))}


def _hits(record: Mapping[str, Any], column: str, where: str) -> Any:
    """Return what a cell holds; of a search engine's answer the hits inside, if it is complete."""
    value, shards = record[column], record.get("_shards")
    failed = isinstance(shards, dict) and shards.get("failed")
    if failed or record.get("timed_out") is True or isinstance(record.get("error"), str | dict):
        raise UserError(f"{where}: an incomplete answer (an error, failed shards, or time ran out); ask again")
    return value["hits"] if isinstance(value, dict) and "hits" in value else value


def _entries(value: Any, where: str) -> Iterator[Any]:
    """Yield the entries of a list, or of a dictionary of lists; of another value one, unless it is missing."""
    if isinstance(value, dict) and all(map(_is_list, value.values())):
        if len(set(map(len, value.values()))) > 1:
            raise UserError(f"{where}: the lists of {', '.join(value)} have different lengths")
        yield from (dict(zip(value, entry, strict=True)) for entry in zip(*value.values(), strict=True))
    elif _is_list(value):
        yield from value
    elif not _is_missing(value):
        yield value


def _flat(entry: Any, named: Mapping[str, str], where: str) -> dict[str, Any]:
    """Flatten a passage or hit: its own fields, and the fields of a document inside it that are known or named."""
    if isinstance(entry, str):
        return {"text": entry}
    if not isinstance(entry, dict):
        raise UserError(f"{where}: {type(entry).__name__} in place of a text or a hit; expected one like {EXAMPLE}")
    chosen = set(named.values())
    flat = {key: value for key, value in entry.items() if key[:1] != "_" or key in PRIVATE | chosen}
    for inner in (flat.pop(nested) for nested in NESTED if isinstance(flat.get(nested), dict)):
        flat |= {key: value for key, value in inner.items() if key in chosen or (key in TEXTS and key not in flat)}
    if isinstance(scores := flat.pop("matched_queries", None), dict):  # Elasticsearch's scores of named queries
        flat |= scores
    return {key: joined(value) if _is_list(value) else value for key, value in flat.items() if not _is_missing(value)}


def _exploded(frame: pd.DataFrame, fields: Sequence[str], called: Mapping[str, str], name: str) -> pd.DataFrame:
    """Turn rows that hold lists of documents, grades and scores into a row per entry."""
    sizes = {column: frame[column].map(lambda value: len(value) if _is_list(value) else -1) for column in frame.columns}
    first = sizes[fields[0]]
    for field in fields:
        if (odd := ((sizes[field] != first) | (first < 0)).to_numpy()).any():
            row = frame.index[int(odd.argmax())]
            both = f"{called[fields[0]]} and {called[field]}"
            raise UserError(f"{name}: row {row}: {both} are not lists of one length")
    return frame.explode([column for column, size in sizes.items() if (size == first).all()])  # not vectors


def _with_titles(frame: pd.DataFrame) -> pd.DataFrame:
    """Put titles above texts, as in other documents here."""
    if "title" not in frame or "text" not in frame:
        return frame
    pairs = zip(frame.pop("title"), frame["text"], strict=True)
    texts = [joined([title, text]) if isinstance(title, str) and title.strip() else text for title, text in pairs]
    return frame.assign(text=np.array(texts, dtype=object))


def _with_queries(records: Records, queries: Mapping[str, str] | None) -> Records:
    """Take the texts of the queries from elsewhere, and leave other queries out."""
    if queries is None:
        return records
    if "query_id" not in records.frame:
        raise UserError(f"{records.name}: has no query_id, by which its queries would be found among those given")
    ids = [str(id) for id in records.frame["query_id"]]
    chosen = np.array([id in queries for id in ids], dtype=bool)
    if others := {*ids} - {*queries}:
        log.warning("%s: %d queries are not among those given; left out", records.name, len(others))
    if not chosen.any():
        raise UserError(f"{records.name}: no candidates for any of the queries given")
    texts = np.array([queries.get(id, "") for id in ids], dtype=object)
    without = {id: text for id, text in queries.items() if id not in {*ids}}
    called = {**records.called, "query": records.called.get("query", "query")}
    return records._replace(frame=records.frame.assign(query=texts)[chosen], called=called, without=without)


def _unknown_shape(there: Sequence[str], name: str) -> UserError:
    def likeness(shape: str) -> float:
        ratios = (max(difflib.SequenceMatcher(None, one, other).ratio() for other in there) for one in SHAPES[shape])
        return sum(ratios) / len(SHAPES[shape])

    first, second = sorted(SHAPES, key=likeness, reverse=True)[:2]
    return UserError(
        f"{name}: columns {', '.join(map(repr, there))} are of no known shape; the nearest are '{first}' and "
        f"'{second}'; rename unusual columns, or name them with columns={{'text': …}}"
    )
