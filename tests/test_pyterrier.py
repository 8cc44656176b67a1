"""The transformer inside PyTerrier's own pipelines and experiments."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from rerank.errors import UserError
from rerank.models.text.cross_encoder import CrossEncoder

pt = pytest.importorskip("pyterrier")
pd = pytest.importorskip("pandas")

TEXTS = {
    "d1": "the shock wave on a blunt body",
    "d2": "heat transfer in the laminar boundary layer of a flat plate",
    "d3": "jet",
    "d4": "a slender wing at supersonic speed",
    "d5": "the theory of lift",
}
QUERIES = pd.DataFrame({"qid": ["q2", "q1", "q3"], "query": ["heat", "shock wave", "nothing was found"]})


def first_stage(lengths: dict[str, int] | None = None) -> object:
    """Make a retriever that returns the documents in their order with falling scores."""
    rows = []
    for qid, length in (lengths or {"q2": 5, "q1": 3}).items():
        for rank, docno in enumerate(list(TEXTS)[:length]):
            rows.append((qid, docno, TEXTS[docno], 10.0 - rank**2, rank))
    return pt.Transformer.from_df(pd.DataFrame(rows, columns=["qid", "docno", "text", "score", "rank"]))


@pytest.fixture(scope="module")
def model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    folder = tmp_path_factory.mktemp("trained")
    CrossEncoder(str(tiny_model), query_length=8, document_length=24).save(folder)
    return CrossEncoder.load(folder)


def reranker(model: CrossEncoder, **options: object) -> object:
    from rerank.pyterrier import RerankTransformer

    return RerankTransformer(model, **options)


def test_pipeline_ranks_as_the_model_does(model: CrossEncoder) -> None:
    results = (first_stage() >> reranker(model))(QUERIES)
    assert results["qid"].drop_duplicates().tolist() == ["q2", "q1"]
    for qid, query, length in (("q2", "heat", 5), ("q1", "shock wave", 3)):
        found = results[results["qid"] == qid]
        expected = model.rank(query, list(TEXTS.values())[:length])
        assert found["docno"].tolist() == [list(TEXTS)[e["corpus_id"]] for e in expected]
        np.testing.assert_allclose(found["score"], [e["score"] for e in expected], atol=2e-2)
        assert found["rank"].tolist() == list(range(length))
        assert found["text"].tolist() == [TEXTS[d] for d in found["docno"]]
    assert pt.model.add_ranks(results.copy())["rank"].tolist() == results["rank"].tolist(), "ranks as PyTerrier's own"
    assert not pt.java.started()


def test_ties_keep_the_incoming_order(model: CrossEncoder) -> None:
    frame = pd.DataFrame({"qid": "q", "query": "heat", "docno": ["c", "a", "b"], "text": "the same", "rank": [2, 0, 1]})
    model = copy.deepcopy(model)  # one text's score may differ by its last bit, with its place in a product
    torch.nn.init.zeros_(model.network.classifier.weight)
    assert reranker(model)(frame)["docno"].tolist() == ["a", "b", "c"]
    assert reranker(model)(frame.drop(columns="rank"))["docno"].tolist() == ["c", "a", "b"]
    pd.testing.assert_index_equal(frame.columns, pd.Index(["qid", "query", "docno", "text", "rank"]))


def test_missing_columns_and_untrained_models_are_refused(model: CrossEncoder, tiny_model: Path) -> None:
    frame = pd.DataFrame({"qid": ["1"], "query": ["heat"], "docno": ["d"], "body": ["a wing"]})
    with pytest.raises(pt.validate.InputValidationError, match="text"):
        reranker(model)(frame)
    assert len(reranker(model, text_field="body")(frame)) == 1
    assert len(reranker(model, text_field="body")(frame[:0])) == 0
    with pytest.raises(UserError, match="no trained head"):
        reranker(tiny_model)


def test_model_that_starts_from_bm25_reads_its_column_or_the_score(model: CrossEncoder, tmp_path: Path) -> None:
    """Scores are matched to their query, also if the rows of queries are mixed."""
    folder = tmp_path / "text"
    model.save(folder)
    start = CrossEncoder(str(folder), residual_columns="bm25")
    came = first_stage()(QUERIES)
    came["bm25"] = np.arange(len(came), dtype=float)[::-1] % 4
    for frame, column in ((came, "bm25"), (came.drop(columns="bm25"), "score")):
        results = reranker(start)(frame.sample(frac=1, random_state=0))
        for qid, query, length in (("q2", "heat", 5), ("q1", "shock wave", 3)):
            given = frame[frame["qid"] == qid][column].tolist()
            expected = start.rank(query, list(TEXTS.values())[:length], columns={"bm25": given})
            found = results[results["qid"] == qid].set_index("docno")["score"]
            for one in expected:
                assert found[list(TEXTS)[one["corpus_id"]]] == pytest.approx(one["score"], abs=2e-2)
    with pytest.raises(pt.validate.InputValidationError):
        reranker(start)(came.drop(columns=["bm25", "score"]))
