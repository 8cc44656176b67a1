"""Lists of hits with their texts: a row per hit, a line per query, or a search API's answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from rerank.collections.base import Document, Qrels, Query, checked_id, encodable
from rerank.collections.queries import HIGHEST
from rerank.collections.records import NAMES, json_objects, json_text
from rerank.errors import UserError
from rerank.storage.arrow import FLOAT32

Record: TypeAlias = dict[str, Any]

LISTS = ("hits", "candidates", "results")
NESTED = ("_source", "fields", "doc")
"""Where engines put a document's fields."""

NAMED = "matched_queries"
"""Elasticsearch's scores of named queries (``include_named_queries_score``)."""

NOT_COLUMNS = frozenset((*(name for names in NAMES.values() for name in names), *NESTED, NAMED, "title", "id"))
RIGHT = '{"query_id": "7", "query": "…", "doc_id": "d1", "text": "…", "score": 9.5}'
BATCH = 4096


class Hit(NamedTuple):
    """A document of a list, with what systems say of it, by column; a score that is missing is unknown."""

    where: str
    id: str
    text: str
    scores: Mapping[str, float]
    grade: int | None = None


class HitList(NamedTuple):
    """A query and its hits, in the order of the file."""

    query: Query
    hits: list[Hit]


class HitsCollection(ABC):
    """Queries, and the documents of their hits: what has lists of its own, and needs no search.

    Args:
        fields: the fields that make a text; None takes ``text`` (and ``title``, where there is one).
        columns: what fields are called here, ``NAME=FIELD``: ``query=question``, ``text=passage``.
    """

    order: str | None = None
    """The column that orders the lists; None leaves it to the records."""

    def __init__(self, name: str, fields: Sequence[str] | None = None, columns: Sequence[str] | None = None) -> None:
        self.name, self.fields = name, fields
        self.renamed = parse_columns(columns or ())
        self.asked: dict[str, Query] | None = None
        self._numeric: set[str] = set()

    @abstractmethod
    def records(self) -> Iterator[tuple[str, Record]]:
        """Rows or lists, and the place of each."""

    @abstractmethod
    def fingerprint(self) -> str: ...

    def lists(self) -> Iterator[HitList]:
        """Stream the lists; memory holds one of them, and the queries' ids."""
        seen: set[str] = set()
        pending: HitList | None = None
        for where, query, hits, is_row in self._parts():
            if is_row and pending is not None and pending.query.id == query.id:
                if pending.query != query:
                    raise UserError(f"{where}: query {query.id!r} has another text than in the row before")
                pending.hits.extend(hits)
                continue
            if pending is not None:
                yield _checked(pending)
            if query.id in seen:
                raise UserError(f"{where}: query {query.id!r} again, after others; put all rows of a query together")
            seen.add(query.id)
            pending = HitList(query, hits)
        if pending is None:
            raise UserError(f"{self.name}: no hits; expected rows like {RIGHT}")
        yield _checked(pending)

    def _parts(self) -> Iterator[tuple[str, Query, list[Hit], bool]]:
        """Each record as its place, its query, its hits, and whether it is a row, of which a query may have more."""
        left = iter((self.asked or {}).values())
        answers = 0
        for where, record in self._entries():
            if (answer := _answer(where, record)) is not None:
                query = self._asked(where, record, left)
                answers += 1
                yield where, query, [self._hit(where, self._rename(hit)) for hit in answer], False
                continue
            record = self._rename(record)
            named = [record[key] for key in LISTS if key in record]
            row = bool(_key(record, NAMES["doc_id"]))  # its numbers may have such names, too
            listed = next((value for value in named if not row or isinstance(value, list | dict)), None)
            if listed is None:
                yield where, self._query(where, record), [self._hit(where, record)], True
            else:
                rows = [self._rename(row) for row in _rows(where, listed)]
                first = rows[0] if rows and not _key(record, NAMES["query_id"]) else {}
                yield where, self._query(where, {**first, **record}), [self._hit(where, row) for row in rows], False
        if answers and self.asked is not None and (rest := sum(1 for _ in left)):
            raise UserError(f"{self.name}: {answers} answers for {answers + rest} queries; give those that were asked")

    def _entries(self) -> Iterator[tuple[str, Record]]:
        """Records, the answers of a multi-search one by one."""
        for where, record in self.records():
            responses = record.get("responses")
            if isinstance(responses, list):
                yield from json_objects(responses, f"{where}: response", RIGHT)
            else:
                yield where, record

    def _rename(self, record: Record) -> Record:
        if not self.renamed:
            return record
        names = self.renamed
        return {names.get(key, key): record[key] for key in record if key in names or key not in names.values()}

    def _asked(self, where: str, record: Record, left: Iterator[Query]) -> Query:
        """The query of a search API's answer: its own, where somebody added it, or the next."""
        if _key(record, NAMES["query_id"]):
            return self._query(where, self._rename(record))
        if self.asked is None:
            raise UserError(f"{where}: an answer has no query; give the queries, in order, by --queries")
        if (query := next(left, None)) is None:
            raise UserError(f"{where}: more answers than the {len(self.asked)} queries; give those that were asked")
        return query

    def _query(self, where: str, record: Record) -> Query:
        text = record[key] if (key := _key(record, NAMES["query"])) else None
        if isinstance(text, dict):  # as rank_llm's requests have it
            record, text = {**text, **record}, text.get("text")
        if (key := _key(record, NAMES["query_id"])) is None:
            raise UserError(
                f"{where}: no query id among the fields {_names(record)}; expected 'query_id' (--columns "
                "query_id=FIELD names another; rerank.Lists.from_dataframe makes ids from the texts)"
            )
        id = checked_id(record[key], f"{where}: {key}")
        if self.asked is not None:
            return self.asked.get(id, Query(id, ""))
        if text is None:
            raise UserError(f"{where}: query {id!r} has no text; expected 'query', or name a file by --queries")
        if not isinstance(text, str):
            raise UserError(f"{where}: the text of query {id!r} is {type(text).__name__}; expected a string")
        return Query(id, encodable(text))

    def ask(self, queries: Sequence[Query]) -> None:
        """Take ids and texts of the queries from here: by id, or in the order of a search API's answers."""
        self.asked = {query.id: query for query in queries}

    def _hit(self, where: str, record: Record) -> Hit:
        for nested in (record[key] for key in NESTED if self.renamed and isinstance(record.get(key), dict)):
            named = {key: value for key, value in self._rename(nested).items() if key in self.renamed.values()}
            record = {**record, **named}
        if _key(record, NAMES["doc_id"]) is None and isinstance(record.get("doc"), dict):
            record = {**record["doc"], **record}
        if (key := _key(record, NAMES["doc_id"])) is None:
            raise UserError(
                f"{where}: no document id among the fields {_names(record)}; expected 'doc_id' (--columns "
                "doc_id=FIELD names another)"
            )
        id = checked_id(record[key], f"{where}: {key}")
        return Hit(where, id, self._text(where, id, record), self._scores(where, record), _grade(where, record))

    def _text(self, where: str, id: str, record: Record) -> str:
        fields: Record = record
        for key in NESTED:
            if isinstance(nested := record.get(key), dict):
                fields = {**self._rename(nested), **fields}
        chosen = self.fields
        if chosen is None:
            body = next((key for key in NAMES["text"] if fields.get(key) is not None), None)
            if body is not None and fields.get("title") is None and isinstance(fields[body], str):
                return encodable(fields[body])  # not stripped, so that what was exported comes back equal
            chosen = () if body is None else ("title", body)
        if all(fields.get(key) is None for key in chosen):
            wanted = "'text', or --fields" if self.fields is None else " or ".join(map(repr, self.fields))
            raise UserError(f"{where}: document {id!r} has no text; its fields: {_names(fields)}; expected {wanted}")
        return json_text(fields, chosen, where)

    def _scores(self, where: str, record: Record) -> dict[str, float]:
        scores: dict[str, float] = {}
        if key := next((key for key in NAMES["score"] if record.get(key) is not None), None):
            scores["score"] = finite(record[key], where, key)
        elif record.get("rank") is not None:  # counts from the best
            scores["rank"] = -finite(record["rank"], where, "rank")
        for key, value in record.items():
            if key in NOT_COLUMNS or value is None or key[:1] == "_":
                continue
            kind = type(value)
            if kind in (float, int, Decimal):
                if self.fields is None or key not in self.fields:
                    scores[key] = finite(value, where, key)
                    self._numeric.add(key)
            elif key in self._numeric:
                raise UserError(f"{where}: {key} {value!r}; expected a number as before, or null")
        if isinstance(named := record.get(NAMED), dict):
            scores |= {key: finite(value, where, key) for key, value in named.items() if value is not None}
        return {key: value for key, value in scores.items() if value == value}

    def documents(self) -> Iterator[Document]:
        """Stream each document once, in the order of its first list."""
        distinct = Distinct()
        for ranked in self.lists():
            for hit in distinct.place(ranked.hits)[1]:
                yield Document(hit.id, hit.text)

    def queries(self) -> Iterator[Query]:
        return (ranked.query for ranked in self.lists())

    def qrels(self) -> Qrels | None:
        found: Qrels = {}
        for query, hits in self.lists():
            if judged := {hit.id: hit.grade for hit in hits if hit.grade is not None}:
                found[query.id] = judged
        return found or None

    def document_count(self) -> None:
        return None


class Distinct:
    """Documents that come many times, each given one row at its first: some 200 bytes a document, whatever its text."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, int]] = {}  # with a hash of the text

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def place(self, hits: Sequence[Hit]) -> tuple[list[int], list[Hit]]:
        """The row of each hit's document, and the hits whose documents are new, in the order of their rows."""
        rows, new = [], []
        for hit in hits:
            count, text = len(self._rows), hash(hit.text)
            row, first_text = self._rows.setdefault(hit.id, (count, text))
            if text != first_text:
                raise UserError(f"{hit.where}: document {hit.id!r} has another text than before; an id may have one")
            rows.append(row)
            if row == count:
                new.append(hit)
        return rows, new


def parse_columns(columns: Sequence[str]) -> dict[str, str]:
    """What ``NAME=FIELD`` says: the names here by the names of the fields.

    >>> parse_columns(["query=question", "text=passage"])
    {'question': 'query', 'passage': 'text'}
    """
    renamed: dict[str, str] = {}
    for pair in columns:
        name, equals, field = pair.partition("=")
        if not (name and equals and field):
            raise UserError(f"columns: {pair!r}; expected NAME=FIELD, such as query=question text=passage")
        if field in renamed or name in renamed.values():
            raise UserError(f"columns: {pair!r} repeats a name or a field; each may come once")
        renamed[field] = name
    return renamed


def finite(value: object, where: str, name: str) -> float:
    """A number that float32 can hold, or NaN; refused otherwise."""
    value = float(value) if isinstance(value, Decimal) else value
    if isinstance(value, int | float) and not isinstance(value, bool) and not abs(value) > FLOAT32:
        return float(value)
    raise UserError(f"{where}: {name} {str(value)[:50]!r}; expected a finite number, or null")


def _answer(where: str, record: Record) -> list[Record] | None:
    """The hits of a search API's answer; None for what is none."""
    hits = record.get("hits")
    error = record.get("error")
    if isinstance(error, str | dict) and error and not isinstance(hits, list | dict):
        parts = [error[key] for key in ("type", "reason") if error.get(key)] if isinstance(error, dict) else [error]
        said = " ".join(": ".join(map(str, parts)).split())[:300]
        raise UserError(f"{where}: an error in place of hits ({said}); ask again")
    if not isinstance(hits, dict) or "hits" not in hits:
        return None
    shards = record.get("_shards")
    failed = shards.get("failed") if isinstance(shards, dict) else 0
    if record.get("timed_out") or failed:
        raise UserError(f"{where}: an incomplete answer ({failed or 0} shards failed, or time ran out); ask again")
    return _rows(where, hits["hits"])


def _rows(where: str, listed: object) -> list[Record]:
    """The hits of a list; a list per field, as `datasets` may have it, is taken apart."""
    if isinstance(listed, dict) and all(isinstance(values, list) for values in listed.values()):
        if len({len(values) for values in listed.values()}) > 1:
            raise UserError(f"{where}: the lists of the hits' fields have different lengths")
        listed = [dict(zip(listed, values, strict=True)) for values in zip(*listed.values(), strict=True)]
    if not isinstance(listed, list):
        raise UserError(f"{where}: hits are {type(listed).__name__}; expected a list")
    return [hit for _, hit in json_objects(listed, f"{where}: hit", '{"doc_id": "d1", "text": "…", "score": 9.5}')]


def _key(record: Mapping[str, object], names: Sequence[str]) -> str | None:
    for name in names:  # a loop, as this runs several times a hit
        if name in record:
            return name
    return None


def _names(record: Mapping[str, object]) -> str:
    return ", ".join(str(key) for key in record if key not in NESTED)[:300] or "none"


def _grade(where: str, record: Record) -> int | None:
    key = _key(record, NAMES["grade"])
    grade = None if key is None else record[key]
    if grade is None or grade != grade:
        return None
    if isinstance(grade, bool) or not isinstance(grade, int | float) or grade % 1 or abs(grade) > HIGHEST:
        shown = f"{where}: {key} {str(grade)[:50]!r}"
        raise UserError(f"{shown}; expected a whole number up to {HIGHEST}, or another name: --columns clicks={key}")
    return int(grade)


def _checked(ranked: HitList) -> HitList:
    seen: set[str] = set()
    for hit in ranked.hits:
        if hit.id in seen:
            raise UserError(f"{hit.where}: document {hit.id!r} is in the list of query {ranked.query.id!r} already")
        seen.add(hit.id)
    return ranked
