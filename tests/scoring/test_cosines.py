"""Cosines of an embedding model: as sentence-transformers has them, for every candidate, whatever the blocks are."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import rerank
from rerank import Lists
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.models.folder import find_model
from rerank.models.load import Interpolated
from rerank.retrieval import dense
from rerank.retrieval.runs import read_run
from rerank.scoring.outputs import add_cosines
from tests.builders import make_lists, make_lists_with_added, write_collection

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def test_add_cosines_equals_sentence_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentence_transformers import SentenceTransformer

    monkeypatch.setattr(dense, "BLOCK", 5)
    make_lists_with_added(tmp_path)
    add_cosines(tmp_path / "lists", MODEL, "dense", precision="fp32")
    lists = Lists.open(tmp_path / "lists").with_added()
    model = SentenceTransformer(str(find_model(MODEL)))
    values = lists.column("dense")
    for index, query in enumerate(lists.query_texts):
        part = slice(*lists.offsets[index : index + 2])
        texts = lists.store.documents.column("text").take(lists.documents[part]).to_pylist()
        expected = model.encode(texts, normalize_embeddings=True) @ model.encode(query, normalize_embeddings=True)
        assert values[part] == pytest.approx(expected, abs=1e-3)  # the documents' vectors are stored in float16
    assert {path.name for path in (tmp_path / "lists" / "columns").iterdir()} == {"bm25.arrow", "dense.arrow"}


def test_add_cosines_repeats_nothing_and_raises_for_another_model(tmp_path: Path, tiny_model: Path) -> None:
    make_lists_with_added(tmp_path)
    add_cosines(tmp_path / "lists", MODEL, "dense")
    before = np.array(Lists.open(tmp_path / "lists").column("dense"))
    add_cosines(tmp_path / "lists", MODEL, "dense")
    add_cosines(tmp_path / "lists", MODEL)
    assert (before == Lists.open(tmp_path / "lists").column("cosine-all-MiniLM-L6-v2")).all()
    assert (before == Lists.open(tmp_path / "lists").column("dense")).all()
    with pytest.raises(UserError, match="made from something else"):
        add_cosines(tmp_path / "lists", tiny_model, "dense")


def test_ranker_computes_missing_cosines(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    add_cosines(tmp_path / "lists", MODEL, "dense", precision="fp32")
    made = lists.store.entry("dense").made
    Interpolated(None, {"bm25": 0.4, "dense": 0.6}, cosines={"dense": made}).save(tmp_path / "ranker")
    ranker = rerank.load(tmp_path / "ranker")
    assert ranker.given == ["bm25"]
    expected = ranker.predict(lists)
    shutil.copytree(tmp_path / "lists", tmp_path / "bare")
    Lists.open(tmp_path / "bare").store.drop_column("dense")
    bare = Lists.open(tmp_path / "bare")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "bare").rglob("*")}
    assert ranker.predict(bare) == pytest.approx(expected, abs=1e-3)
    some = bare.select([4, 1]).top(6)
    assert ranker.predict(some) == pytest.approx(ranker.predict(lists.select([4, 1]).top(6)), abs=1e-3)
    run = rerank.rerank_lists(str(tmp_path / "ranker"), bare)
    words = ["--lists", str(tmp_path / "bare"), "--output", str(tmp_path / "run.trec")]
    assert main(["rerank", "--model", str(tmp_path / "ranker"), *words]) == 0
    written = read_run(tmp_path / "run.trec")
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "bare").rglob("*")}
    part = slice(*bare.offsets[:2])
    texts = bare.store.documents.column("text").take(bare.documents[part]).to_pylist()
    columns, query = {"bm25": bare.column("bm25")[part].tolist()}, bare.query_texts[0]
    scores = np.empty(len(texts))
    for ranked in ranker.rank(query, texts, columns=columns):
        scores[ranked["corpus_id"]] = ranked["score"]
    assert scores == pytest.approx(expected[part], abs=1e-3)
    for found in (run, written):
        values = sorted((scored.score for scored in found[bare.query_ids[0]]), reverse=True)
        assert values == pytest.approx(sorted(expected[part].tolist(), reverse=True), abs=1e-3)
    sides = {"by-column": lists, "by-cosines": bare}
    calibrated = [rerank.calibrate(str(tmp_path / "ranker"), of, output=str(tmp_path / n)) for n, of in sides.items()]
    assert calibrated[0].a == pytest.approx(calibrated[1].a, rel=1e-2)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "bare").rglob("*")}


def test_ranker_raises_for_cosines_of_another_model(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    made = {"dense": {"model": MODEL, "sha256": "0" * 64}}
    Interpolated(None, {"dense": 1.0}, cosines=made).save(tmp_path / "ranker")
    with pytest.raises(UserError, match=r"column dense: .* is another model now"):
        rerank.load(tmp_path / "ranker").predict(lists)
    lists.store.add_column(
        "dense", np.zeros(lists.size), made={"model": "runs/a/best", "sha256": "1" * 64, "number": "cosine"}
    )
    with pytest.raises(UserError, match=r"cosines by .*MiniLM.*, and .* has those of runs/a/best; remove them"):
        rerank.load(tmp_path / "ranker").predict(lists)


@pytest.mark.usefixtures("home")
def test_retrieve_dense_alone_and_with_bm25(tmp_path: Path) -> None:
    """The column of the union is the one of `rerank add --embed`, where both have a number."""
    collection = write_collection(tmp_path / "c", queries=4)
    nearest = rerank.retrieve(collection, depth=10, dense=MODEL)
    assert (nearest.lengths == 10).all() and nearest.store.column_names == ["dense"]
    values = nearest.column("dense")
    assert all((np.diff(values[a:b]) <= 0).all() for a, b in zip(nearest.offsets, nearest.offsets[1:], strict=False))
    words = ["retrieve", "--collection", collection, "--output", str(tmp_path / "both"), "--depth", "10"]
    assert main([*words, "--dense", MODEL, "--bm25"]) == 0
    assert main(["add", "--lists", str(tmp_path / "both"), "--embed", MODEL, "--name", "all"]) == 0
    both = Lists.open(tmp_path / "both")
    assert {"bm25", "dense", "all"} <= set(both.store.column_names)
    found, cosines = both.column("dense"), both.column("all")
    known = ~np.isnan(found)
    assert known.sum() == sum(len(ranked) for ranked in nearest.run().values()) and not np.isnan(cosines).any()
    np.testing.assert_allclose(found[known], cosines[known], atol=5e-3)  # bf16, other batch mates
