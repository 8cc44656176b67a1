"""Evidence that a model makes itself, and lists from documents alone, by the commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rerank import Lists, Texts, retrieve
from rerank.commands.cli import main
from rerank.errors import UserError
from tests.builders import write_collection

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def collection(tmp_path: Path) -> str:
    return write_collection(tmp_path / "c", queries=4)


def test_the_nearest_documents_alone_and_with_bm25(tmp_path: Path, collection: str) -> None:
    """The column of the union is the one of `rerank add --embed`, where both have a number."""
    dense = retrieve(collection, depth=10, dense=MODEL)
    assert (dense.lengths == 10).all() and dense.store.column_names == ["dense"]
    values = dense.column("dense")
    assert all((np.diff(values[a:b]) <= 0).all() for a, b in zip(dense.offsets, dense.offsets[1:], strict=False))
    words = ["retrieve", "--collection", collection, "--output", str(tmp_path / "both"), "--depth", "10"]
    assert main([*words, "--dense", MODEL, "--bm25"]) == 0
    assert main(["add", "--lists", str(tmp_path / "both"), "--embed", MODEL, "--name", "all"]) == 0
    both = Lists.open(tmp_path / "both")
    assert {"bm25", "dense", "all"} <= set(both.store.column_names)
    found, cosines = both.column("dense"), both.column("all")
    known = ~np.isnan(found)
    assert known.sum() == sum(len(ranked) for ranked in dense.run().values()) and not np.isnan(cosines).any()
    np.testing.assert_allclose(found[known], cosines[known], atol=5e-3)  # bf16, other batch mates


def test_titles_are_queries_of_documents_without_them(tmp_path: Path) -> None:
    subjects = ["shock waves", "laminar layers", "blunt bodies", "heat transfer", "jet noise", "wing flutter"]
    documents = {
        str(i): f"On {subject} in supersonic flow\nThis paper treats {subject} at high speed, number {i}."
        for i, subject in enumerate(subjects)
    }
    lists = retrieve(Texts(documents, {"q": "x"}), depth=5, queries="titles", add_relevant=True)
    assert lists.query_texts == [text.partition("\n")[0] for text in documents.values()]
    assert lists.qrels == {str(i): {str(i): 1} for i in range(len(subjects))}
    assert not any("On " in text for text in lists.store.documents.column("text").to_pylist())
    few = retrieve(Texts(documents, {"q": "x"}), depth=5, queries="titles:2")
    assert len(few) == 2 and set(few.query_ids) < set(lists.query_ids)
    with pytest.raises(UserError, match="titles:2000"):
        retrieve(Texts(documents, {"q": "x"}), queries="titles:some")
