"""Indexes that others made; scores of documents that are known by their ids, beside those of a search."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from rerank.collections import Query
from rerank.collections.jvm import java_class
from rerank.retrieval import BM25
from rerank.retrieval.known import score_known


def foreign_index(folder: Path, documents: Iterable[tuple[str, str]], option: str = "-storeContents") -> Path:
    """An index as Anserini's users make them, without our manifest."""
    arguments = ["-index", str(folder), "-input", "", "-collection", "JsonCollection", option]
    indexer = java_class("io.anserini.index.SimpleIndexer")(arguments)
    lines = [json.dumps({"id": id, "contents": text}) for id, text in documents]
    assert indexer.addRawDocuments(lines) == len(lines)
    indexer.close()
    return folder


def lowered(scores: Sequence[float]) -> list[float]:
    """Scores of a search from those without regard to ties: a millionth less a tie, in float32, as Anserini does it."""
    found: list[np.float32] = []
    ties = 0
    for score in map(np.float32, scores):
        ties = ties + 1 if found and not found[-1] - score > np.float32(1e-4) else 0
        found.append(score - np.float32(1e-6) * np.float32(ties))
    return [float(score) for score in found]


def compare(index: Path, queries: Sequence[Query], model: BM25, depth: int) -> tuple[int, int]:
    """Score everything that a search returns by its id; how many scores there are, and how many stand without a tie."""
    run = model.search(index, queries, depth)
    count = apart = 0
    with score_known(model, index, complete=True) as score:
        for query in queries:
            ranked = run[query.id]
            backwards = [document.id for document in ranked][::-1]
            found = score(query, backwards)[::-1]
            assert lowered(found) == [document.score for document in ranked], "the same bits"
            equal = [ours == document.score for ours, document in zip(found, ranked, strict=True)]
            clear = [True, *(one - other > 2e-4 for one, other in pairwise(found))]
            assert all(same for same, alone in zip(equal, clear, strict=True) if alone)
            count, apart = count + len(found), apart + sum(equal)
    return count, apart
