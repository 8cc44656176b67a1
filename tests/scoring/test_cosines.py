"""Cosines of an embedding model: as sentence-transformers has them, for every candidate, whatever the blocks are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rerank import Lists
from rerank.errors import UserError
from rerank.models.weights import find_model
from rerank.retrieval import dense
from rerank.scoring.cosines import add_cosines
from tests.builders import make_lists_with_added

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def test_every_candidate_has_its_cosine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentence_transformers import SentenceTransformer

    monkeypatch.setattr(dense, "BLOCK", 5)
    make_lists_with_added(tmp_path)
    covered = add_cosines(tmp_path / "lists", MODEL, "dense", precision="fp32")
    assert covered.candidates[0] == covered.candidates[1] and covered.added[0] == covered.added[1]
    lists = Lists.open(tmp_path / "lists").with_added()
    model = SentenceTransformer(str(find_model(MODEL)))
    values = lists.column("dense")
    for index, query in enumerate(lists.query_texts):
        part = slice(*lists.offsets[index : index + 2])
        texts = lists.store.documents.column("text").take(lists.documents[part]).to_pylist()
        expected = model.encode(texts, normalize_embeddings=True) @ model.encode(query, normalize_embeddings=True)
        assert values[part] == pytest.approx(expected, abs=1e-3)  # the documents' vectors are stored in float16
    assert [path.name for path in (tmp_path / "lists" / "columns").iterdir() if path.name.startswith(".dense.v")] in (
        [],
        [".dense.vectors.lock"],
    )


def test_the_same_call_again_does_nothing_and_another_model_is_refused(tmp_path: Path, tiny_model: Path) -> None:
    make_lists_with_added(tmp_path)
    add_cosines(tmp_path / "lists", MODEL, "dense")
    before = np.array(Lists.open(tmp_path / "lists").column("dense"))
    add_cosines(tmp_path / "lists", MODEL, "dense")
    assert (before == Lists.open(tmp_path / "lists").column("dense")).all()
    with pytest.raises(UserError, match="made from something else"):
        add_cosines(tmp_path / "lists", tiny_model, "dense")
