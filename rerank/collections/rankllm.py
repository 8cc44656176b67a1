"""Ranked lists with their texts in one JSON file, as rank_llm stores them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rerank.collections.base import Document, Qrels, Query, checked_id, joined
from rerank.errors import UserError
from rerank.files import digest, open_text
from rerank.hashes import sha256_of

RIGHT = '[{"query": "…", "hits": [{"qid": 7, "docid": "…", "content": "…", "rank": 1, "score": 9.5}]}]'


class Hit(NamedTuple):
    """A document of a list: its place in the file, id, text, rank from 1 and score."""

    where: str
    id: str
    text: str
    rank: object
    score: object


def read_lists(path: Path) -> Iterator[tuple[Query, list[Hit]]]:
    """Each query of such a file and its hits."""
    with open_text(path) as file:
        try:
            entries: Any = json.load(file)
        except ValueError as error:
            raise UserError(f"{path}: not JSON ({error}); expected {RIGHT}") from error
    seen = set()
    for number, entry in enumerate(entries, 1):
        where = f"{path}: list {number}"
        try:
            query = Query(checked_id(entry["hits"][0]["qid"], where), joined([entry["query"]]))
            hits = [
                Hit(where, checked_id(hit["docid"], where), joined([hit["content"]]), hit["rank"], hit["score"])
                for hit in entry["hits"]
            ]
        except (KeyError, IndexError, TypeError) as error:
            raise UserError(f"{where}: {type(error).__name__} {error}; expected {RIGHT}") from error
        if query.id in seen:
            raise UserError(f"{where}: query id {query.id!r} again; ids are unique")
        seen.add(query.id)
        yield query, hits


class RankLlmFile:
    """``rank_llm:FILE.json``: the queries of the file, and the distinct documents of their lists.

    The lists themselves are read by `rerank.retrieval.read_run`, which takes such a file too.
    """

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        if fields is not None:
            raise UserError(f"rank_llm:{path}: documents have one text and no fields to choose from")
        self.name = f"rank_llm:{path}"
        self.path = Path(path).expanduser()
        if not self.path.is_file():
            raise UserError(f"{self.path}: no such file")

    def documents(self) -> Iterator[Document]:
        """Each document once, in the order of its first list."""
        seen = set()
        for _, hits in read_lists(self.path):
            for hit in hits:
                if hit.id not in seen:
                    seen.add(hit.id)
                    yield Document(hit.id, hit.text)

    def queries(self) -> Iterator[Query]:
        """The queries in the order of the file."""
        return (query for query, _ in read_lists(self.path))

    def qrels(self) -> Qrels | None:
        """Such a file has none."""
        return None

    def document_count(self) -> int | None:
        """Not known before all lists are read."""
        return None

    def fingerprint(self) -> str:
        """Digest of the file."""
        return digest("rank_llm", sha256_of(self.path))
