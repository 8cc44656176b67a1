"""Dense retrieval finds the nearest documents, for any size of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rerank import Texts
from rerank.collections import Query
from rerank.retrieval import dense
from rerank.retrieval.dense import build_vectors, read_vectors, search_dense
from rerank.storage.arrow import Array


class Letters:
    """An encoder that counts letters, and the documents that it has encoded."""

    id, name = "letters", "letters"

    def __init__(self) -> None:
        self.seen = 0

    def documents(self, texts: Sequence[str]) -> Array:
        self.seen += len(texts)
        return self.queries(texts)

    def queries(self, texts: Sequence[str]) -> Array:
        counts = np.array([[text.count(letter) for letter in "abc"] for text in texts], dtype=np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


@pytest.mark.parametrize("block", [1, 2, 100])
def test_search_dense_finds_the_nearest_documents(home: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(dense, "BLOCK", block)
    texts = Texts({"1": "aab", "2": "bbb", "3": "abc", "4": "bb"}, {"x": "b", "y": "ccc"})
    encoder = Letters()
    vectors = build_vectors(texts, encoder)
    run = search_dense(vectors, encoder, list(texts.queries()), depth=3)
    assert [scored.id for scored in run["x"]] == ["2", "4", "3"]  # cosines 1, 1, 0.577; then 0.447
    assert [scored.score for scored in run["x"]] == pytest.approx([1, 1, 3**-0.5], abs=1e-3)
    assert [scored.id for scored in run["y"]] == ["3", "1", "2"]
    build_vectors(texts, encoder)
    assert encoder.seen == 4  # found again


def test_build_vectors_starts_over_when_interrupted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "BLOCK", 2)
    texts = Texts({str(i): "abc"[i % 3] for i in range(7)}, {})
    encoder = Letters()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(encoder, "documents", interrupted)
        build_vectors(texts, encoder)
    vectors = build_vectors(texts, encoder)
    assert [id for ids, _ in read_vectors(vectors) for id in ids] == [document.id for document in texts.documents()]
    run = search_dense(vectors, encoder, [Query("q", "b")], depth=9)
    assert [scored.id for scored in run["q"]][:2] == ["1", "4"] and len(run["q"]) == 7


def interrupted(texts: Sequence[str]) -> Array:
    raise KeyboardInterrupt
