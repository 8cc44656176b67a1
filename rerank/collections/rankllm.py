"""Ranked lists with their texts in one JSON file, as rank_llm stores them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from rerank.collections.base import Query, checked_id, joined
from rerank.collections.hits import NOT_COLUMNS, HitsCollection, Record, finite
from rerank.collections.records import read_json
from rerank.errors import NotFoundError, UserError
from rerank.storage.files import digest
from rerank.storage.hashes import sha256_of

RIGHT = '[{"query": "…", "hits": [{"qid": 7, "docid": "…", "content": "…", "rank": 1, "score": 9.5}]}]'


RankedHit: TypeAlias = tuple[str, str, object, object]
"""A document of a list: its id, text, rank from 1 and score."""


def read_lists(path: Path) -> Iterator[tuple[str, Query, list[RankedHit]]]:
    """The place, query and hits of each list of such a file."""
    entries = read_json(path, RIGHT)
    if not isinstance(entries, list):
        raise UserError(f"{path}: is {type(entries).__name__}, no list; expected {RIGHT}")
    seen = set()
    for number, entry in enumerate(entries, 1):
        where = f"{path}: list {number}"
        try:
            query = Query(checked_id(entry["hits"][0]["qid"], where), joined([entry["query"]]))
            hits = [
                (checked_id(hit["docid"], where), joined([hit["content"]]), hit["rank"], hit["score"])
                for hit in entry["hits"]
            ]
        except (KeyError, IndexError, TypeError) as error:
            raise UserError(f"{where}: {type(error).__name__} {error}; expected {RIGHT}") from error
        if query.id in seen:
            raise UserError(f"{where}: query id {query.id!r} again; ids are unique")
        seen.add(query.id)
        yield where, query, hits


class RankLlmFile(HitsCollection):
    """``rank_llm:FILE.json``: the queries of the file, and the distinct documents of their lists.

    As a run it is read by `rerank.retrieval.read_run`.
    """

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        if fields is not None:
            raise UserError(f"rank_llm:{path}: documents have one text and no fields to choose from")
        super().__init__(f"rank_llm:{path}")
        self.path = Path(path).expanduser()
        if not self.path.is_file():
            raise NotFoundError(f"{self.path}: no such file")
        name = re.sub(r"[^\w.+-]+", "_", self.path.name.split(".json")[0], flags=re.ASCII).strip("._+-")[:100]
        self.order = name if name and name not in NOT_COLUMNS else "score"

    def records(self) -> Iterator[tuple[str, Record]]:
        """Each list, its hits in the order of their ranks."""
        for where, query, hits in read_lists(self.path):
            ranks = [_number(rank, where, "rank") for _, _, rank, _ in hits]
            ranked = [hits[i] for i in sorted(range(len(hits)), key=ranks.__getitem__)]
            rows = [
                {"doc_id": id, "text": text, self.order: _number(score, where, "score")}
                for id, text, _, score in ranked
            ]
            yield where, {"query_id": query.id, "query": query.text, "hits": rows}

    def fingerprint(self) -> str:
        return digest("rank_llm", sha256_of(self.path))


def _number(value: object, where: str, name: str) -> float:
    """A number, which some files have as text."""
    try:
        number = float(value) if isinstance(value, str) else value
    except ValueError:
        number = value
    return finite(number, where, name)
