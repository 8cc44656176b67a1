"""Exhaustive search over vectors: nothing is approximate, whatever the blocks are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank import Texts
from rerank.collections import Document, Query
from rerank.retrieval import dense
from rerank.retrieval.dense import Best, Vectors, build_vectors, search_dense
from rerank.storage.arrow import Array


class Letters:
    """Counts letters; counts too how many documents it has seen."""

    id, name = "letters", "letters"

    def __init__(self) -> None:
        self.seen = 0

    def documents(self, texts: Sequence[str]) -> Array:
        self.seen += len(texts)
        return self.queries(texts)

    def queries(self, texts: Sequence[str]) -> Array:
        counts = np.array([[text.count(letter) for letter in "abc"] for text in texts], dtype=np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


@given(
    scores=st.lists(st.lists(st.integers(-3, 3), min_size=7, max_size=7), min_size=1, max_size=4),
    depth=st.integers(1, 9),
    cuts=st.sets(st.integers(1, 6)),
)
def test_the_best_are_those_of_a_stable_sort_however_they_are_cut(
    scores: list[list[int]], depth: int, cuts: set[int]
) -> None:
    table = np.array(scores, dtype=np.float32)
    best = Best(len(table), depth)
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), 7], strict=True):
        best.add(slice(0, len(table)), table[:, start:end], start)
    for row, places, found in zip(table, best.places, best.scores, strict=True):
        expected = np.argsort(-row, kind="stable")[:depth]
        assert places[: len(expected)].tolist() == expected.tolist()
        assert found[: len(expected)].tolist() == row[expected].tolist()
        assert (places[len(expected) :] == -1).all()


@pytest.mark.parametrize("block", [1, 2, 100])
def test_the_nearest_documents_are_found(home: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
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


def test_what_was_killed_goes_on_behind_the_last_whole_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "BLOCK", 2)
    documents = [Document(str(i), "abc"[i % 3]) for i in range(7)]
    encoder = Letters()

    def killed() -> object:
        yield from documents[:5]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Vectors(tmp_path).build(killed(), encoder, None)  # type: ignore[arg-type]
    assert encoder.seen == 4
    vectors = Vectors(tmp_path)
    vectors.build(documents, encoder, None)
    assert encoder.seen == 4 + 3
    assert [id for ids, _ in vectors.blocks() for id in ids] == [document.id for document in documents]
    run = search_dense(vectors, encoder, [Query("q", "b")], depth=9)
    assert [scored.id for scored in run["q"]][:2] == ["1", "4"] and len(run["q"]) == 7
