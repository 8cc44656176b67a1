"""BM25's scores of documents with given ids, whether a search would return them or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rerank.collections.base import Query
from rerank.collections.jvm import java_class
from rerank.collections.lucene import id_query, open_index
from rerank.retrieval.bm25 import BM25

ScoreKnown: TypeAlias = Callable[[Query, Sequence[str]], list[float]]
"""From a query and ids of documents to their scores; NaN where nothing is known of one."""


@contextmanager
def score_known(model: BM25, index: Path, complete: bool) -> Iterator[ScoreKnown]:
    """Open an index to score documents by their ids.

    A score is Lucene's own for this query, similarity and analyser, rounded as a search rounds it: the float32 that
    `BM25.search` gives, but for the millionths by which a search lowers documents that tie with the one before.

    A ``complete`` index has every document that has a term. One that it lacks then shares no term with any query and
    scores 0, as those do that share none with this query; otherwise nothing is known of it.
    """
    with open_index(index) as searcher:
        model.configure(searcher, index)
        absent = 0.0 if complete else float("nan")
        inner = java_class("org.apache.lucene.search.IndexSearcher")(searcher.reader)
        inner.setSimilarity(searcher.get_similarity())

        def score(query: Query, ids: Sequence[str]) -> list[float]:
            if not ids:
                return []
            found = dict(_search(searcher, inner, query, ids))
            return [found[id] if id in found else 0.0 if inner.count(id_query([id])) else absent for id in ids]

        yield score


def _search(searcher: Any, inner: Any, query: Query, ids: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield ids and scores of the documents that share a term with the query, from one search for all."""
    builder = java_class("org.apache.lucene.search.BooleanQuery$Builder")
    occur = java_class("org.apache.lucene.search.BooleanClause$Occur")
    text = query.text.encode(errors="replace").decode()
    terms = searcher.generator.buildQuery("contents", searcher.get_analyzer(), text)
    chosen = id_query(ids)  # not within the next line: pyjnius binds a method to one object at a time
    both = builder().add(terms, occur.MUST).add(chosen, occur.FILTER).build()
    for hit in inner.search(both, len(ids)).scoreDocs:
        yield searcher.doc(hit.doc).get("id"), rounded(hit.score)


def rounded(score: float) -> float:
    """Round a float32 to four digits like Anserini, ``(float) (Math.round(score * 1e4) / 1e4)`` in Java."""
    return float(np.float32(math.floor(score * 1e4 + 0.5) / 1e4))
