"""A cross-encoder whose text score is added to the first stage's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from rerank.errors import UserError
from rerank.lists import Lists
from rerank.models.load import load_model
from rerank.models.scorer import score_lists
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.storage.arrow import Array
from tests.builders import make_lists_with_added

LENGTHS = {"query_length": 8, "document_length": 24}


def with_column(lists: Lists, name: str, make: Callable[[int], Array]) -> Lists:
    """Add a column in memory."""
    frame = lists.to_dataframe()
    frame[name] = make(len(frame)).astype(np.float32)
    return Lists.from_dataframe(frame)


def tied(count: int) -> Array:
    return np.round(np.random.default_rng(0).normal(size=count))


def trained(model: CrossEncoder) -> CrossEncoder:
    """Draw the last layer, as after a step."""
    with torch.no_grad():
        torch.nn.init.normal_(model.network.classifier.weight)
    return model


def residual(folder: Path, **options: object) -> CrossEncoder:
    return CrossEncoder(str(folder), **{**LENGTHS, "residual_columns": "bm25", **options})


@pytest.mark.parametrize(
    ("precision", "head", "long"), [("fp32", "hf", "truncate"), ("bf16", "cls", "max"), ("fp32", "hf", "max")]
)
def test_initial_ranking_equals_the_first_stage(
    tiny_model: Path, lists: Lists, precision: str, head: str, long: str
) -> None:
    lists = with_column(lists, "other", tied)
    for name in ("bm25", "other"):
        model = residual(tiny_model, head=head, residual_columns=name, long=long)
        model.prepare(lists, seed=7)
        for shown in (lists, lists.top(6)):
            scores = score_lists(model, model.inputs(shown), shown, precision=precision)
            ranked, before = shown.run(scores), shown.run(shown.column(name))  # ties as in the list
            for query, first in before.items():
                assert [d.id for d in ranked[query]] == [d.id for d in first]
                ours, theirs = ([d.score for d in run] for run in (ranked[query], first))
                assert (np.diff(ours) == 0).tolist() == (np.diff(theirs) == 0).tolist() or len(set(theirs)) < 2
    assert np.ptp(scores) > 0.2


def test_score_is_the_weighted_z_plus_the_text(tiny_model: Path, lists: Lists, tmp_path: Path) -> None:
    lists = with_column(lists, "other", lambda n: np.where(np.arange(n) % 3 == 0, np.nan, tied(n)))
    model = trained(residual(tiny_model, residual_columns=["bm25", "other"]))
    assert model.residual.weights.tolist() == [0.125, 0.125]
    model.residual.weights.data = torch.tensor([2.0, 0.25])
    model.save(tmp_path)
    alone = CrossEncoder(str(tmp_path), residual_columns=[])
    text = score_lists(alone, alone.inputs(lists), lists, precision="fp32")
    z = [lists.store.scaled(name, 100) for name in ("bm25", "other")]
    expected = text + 2 * z[0] + z[1] / 4
    found = score_lists(model, model.inputs(lists), lists, precision="fp32")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    again = load_model(tmp_path)
    assert again.contract() == model.contract() and again.columns == ["bm25:z100", "other:z100"]
    np.testing.assert_allclose(again.predict(lists), model.predict(lists), atol=1e-6)
    frame = lists.to_dataframe()
    frame["score"] = model.predict(lists)
    for _, rows in frame.groupby("query_id"):
        columns = {"bm25": rows["bm25"].to_numpy(), "other": [None if np.isnan(x) else x for x in rows["other"]]}
        ranked = model.rank(rows["query"].iloc[0], rows["text"].tolist(), columns=columns)
        ours = {r["corpus_id"]: r["score"] for r in ranked}
        np.testing.assert_allclose([ours[i] for i in range(len(rows))], rows["score"], atol=0.1)  # bf16, other chunks


def test_trained_head_is_kept_and_saved_weights_go_with_their_columns(
    tiny_model: Path, tmp_path: Path, lists: Lists
) -> None:
    trained(CrossEncoder(str(tiny_model), **LENGTHS)).save(tmp_path / "text")
    text, here = CrossEncoder(str(tmp_path / "text")), with_column(lists, "other", tied)
    model = CrossEncoder(str(tmp_path / "text"), residual_columns=["bm25", "other"])
    model.prepare(here, seed=1)
    assert model.residual.weights.tolist() == [0.125, 0.125]
    for name, value in text.network.state_dict().items():
        assert torch.equal(model.network.state_dict()[name], value), name
    model.residual.weights.data = torch.tensor([3.0, 4.0])
    model.save(tmp_path / "both")
    for options, weights in [
        ({}, [3.0, 4.0]),
        ({"residual_weight": 0.5}, [0.25, 0.25]),
        ({"residual_columns": "other"}, [0.25]),
    ]:
        further = CrossEncoder(str(tmp_path / "both"), **options)
        further.prepare(here, seed=9)
        assert further.residual.weights.tolist() == weights


def test_missing_columns_are_refused(tiny_model: Path, lists: Lists) -> None:
    model = residual(tiny_model)
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: model.predict([("a", "b")]), r"the model reads bm25, which pairs do not have.*rank\("),
        (lambda: model.rank("a", ["b"]), "columns: the model reads column bm25"),
        (lambda: model.rank("a", ["b"], columns={"bm25": [1, 2]}), "bm25 has 2 numbers, there are 1 documents"),
        (
            lambda: residual(tiny_model, residual_columns="bm52").inputs(lists),
            r"reads column bm52.*did you mean .?bm25",
        ),
        (lambda: residual(tiny_model, residual_columns=["bm25", "bm25"]), "each once, not bm25, bm25"),
        (
            lambda: residual(tiny_model, residual_columns=[], residual_weight=1.0),
            r"residual_weight: has no effect without model\.residual_columns",
        ),
    ]
    for work, match in cases:
        with pytest.raises(UserError, match=match):
            work()
    assert model.rank("a", [], columns={"bm25": []}) == []


def test_added_documents_need_values_of_columns_that_do_not_order_the_lists(tiny_model: Path, tmp_path: Path) -> None:
    lists = make_lists_with_added(tmp_path)
    added = lists.store.added_rows
    assert np.isnan(lists.store.column("bm25")[added]).all()
    assert np.isfinite(residual(tiny_model).predict(lists.with_added())).all()
    lists.store.add_column("gaps", np.where(added, np.nan, 2.0))
    lists.store.add_column("full", np.where(added, 1.0, 2.0))
    with pytest.raises(UserError, match="gaps has no value for the relevant documents that were added"):
        residual(tiny_model, residual_columns="gaps").inputs(lists.with_added())
    assert np.isfinite(residual(tiny_model, residual_columns="full").predict(lists.with_added())).all()
