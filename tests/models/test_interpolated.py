"""Interpolated rankers rank as the fused run of their parts, and are saved with their weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rerank
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.models.folder import read_contract
from rerank.models.load import Interpolated, load_model
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.decoder import LoRA
from rerank.retrieval.fuse import fuse
from rerank.retrieval.runs import Run, Scored
from tests.builders import make_decoder, make_lists_with_added

NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0, -2.5, 0.1]), st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False)
)
WEIGHTS = st.lists(st.sampled_from([0.0, 0.05, 0.3, 1.0, 3.0]), min_size=3, max_size=3).filter(any)


@st.composite
def candidates(draw: st.DrawFn) -> tuple[Lists, np.ndarray]:
    """Lists that BM25 ordered, of which another system returned some; and a model's scores."""
    rows: list[dict[str, Any]] = []
    for query in range(draw(st.integers(1, 3))):
        for place, score in enumerate(sorted(draw(st.lists(NUMBERS, min_size=1, max_size=8)), reverse=True)):
            row = {"query": f"query {query}", "text": f"text {place}", "bm25": score}
            rows.append(row | {"dense": draw(st.one_of(st.none(), NUMBERS)), "model": draw(NUMBERS)})
    frame = pd.DataFrame(rows)
    lists = Lists.from_dataframe(frame.drop(columns="model").astype({"dense": float}))
    return lists, frame["model"].to_numpy(np.float32)


def by_hand(lists: Lists, scores: np.ndarray) -> list[Run]:
    """Runs of both columns and of a model's scores: what has a number, best first, ties in the order of the list."""
    ids, runs = lists.document_ids(lists.documents), list[Run]()
    for numbers in (lists.column("bm25"), lists.column("dense"), scores):
        runs.append({})
        for query, start, end in zip(lists.query_ids, lists.offsets[:-1], lists.offsets[1:], strict=True):
            own = [Scored(ids[i], float(numbers[i])) for i in range(start, end) if not np.isnan(numbers[i])]
            runs[-1][query] = sorted(own, key=lambda scored: -scored.score)
    return runs


def told(run: Run) -> dict[str, list[tuple[str, float]]]:
    return {query: [(scored.id, float(np.float32(scored.score))) for scored in ranked] for query, ranked in run.items()}


@settings(max_examples=150, deadline=None)
@given(drawn=candidates(), weights=WEIGHTS)
def test_lists_are_ranked_as_by_the_fused_run_to_the_last_tie(
    drawn: tuple[Lists, np.ndarray], weights: list[float]
) -> None:
    lists, scores = drawn
    runs = by_hand(lists, scores)
    of_columns = dict(zip(["bm25", "dense"], weights, strict=False))
    ranker = Interpolated(rerank.MLP(), of_columns, text=weights[2])
    found = ranker.interpolate(lists, scores)
    assert told(lists.run(found)) == told(fuse(runs, weights))
    if any(weights[:2]):
        fusion = Interpolated(None, of_columns)
        found = fusion.predict(lists)
        assert told(lists.run(found)) == told(fuse(runs[:2], weights[:2]))
        for start, end in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):  # and by what is given of one query
            columns = {name: lists.column(name)[start:end].tolist() for name in of_columns}
            given = fusion.scores_of("", [""] * (end - start), columns)
            assert given.tolist() == found[start:end].tolist()


def test_documents_that_were_added_change_nothing_for_the_others(tmp_path: Path) -> None:
    shown = make_lists_with_added(tmp_path)
    (first,) = shown.store.column_names
    with pytest.raises(UserError, match="has no value for the relevant documents that were added"):
        Interpolated(None, {first: 1.0}).predict(shown.with_added())
    whole = shown.with_added()
    shown.store.add_column("all", np.random.default_rng(0).normal(size=len(shown.store.document)).astype(np.float32))
    ranker = Interpolated(None, {"all": 1.0})
    visible = ~shown.store.added_rows[whole.row_numbers]
    assert ranker.predict(whole)[visible].tolist() == ranker.predict(shown).tolist()
    assert not visible.all()


@pytest.fixture
def text_model(tmp_path: Path, tiny_model: Path) -> Path:
    CrossEncoder(str(tiny_model), query_length=8, document_length=24).save(tmp_path / "best")
    return tmp_path / "best"


def test_save_adds_weights_to_a_models_folder(text_model: Path, tmp_path: Path, lists: Lists) -> None:
    ranker = tmp_path / "ranker"
    Interpolated(rerank.load(text_model), {"bm25": 0.25}, 0.75).save(str(ranker))
    assert {path.name for path in ranker.iterdir()} == {path.name for path in text_model.iterdir()}
    assert read_contract(ranker) == read_contract(text_model) | {
        "interpolation": {"columns": {"bm25": 0.25}, "text": 0.75}
    }
    loaded, alone = rerank.load(ranker), rerank.load(ranker, interpolate=False)
    assert isinstance(loaded, Interpolated) and isinstance(alone, CrossEncoder)
    expected = alone.predict(lists)
    for model in (load_model(text_model), CrossEncoder.load(ranker)):
        np.testing.assert_array_equal(model.predict(lists), expected)
    mixed = loaded.predict(lists)
    assert told(lists.run(mixed)) == told(fuse([lists.run(), lists.run(expected)], [0.25, 0.75]))
    loaded.save(tmp_path / "again")
    np.testing.assert_array_equal(rerank.load(tmp_path / "again").predict(lists), mixed)
    alone.save(tmp_path / "alone")
    assert read_contract(tmp_path / "alone") == read_contract(text_model)
    Interpolated(None, {"bm25": 1}).save(tmp_path / "fusion")
    assert {path.name for path in (tmp_path / "fusion").iterdir()} == {"rerank.json"}
    assert told(lists.run(rerank.load(tmp_path / "fusion").predict(lists))).keys() == told(lists.run()).keys()


def test_adapters_and_models_of_vectors_are_interpolated(tmp_path: Path, lists: Lists) -> None:
    decoder = rerank.Decoder(str(make_decoder(tmp_path / "qwen")), lora=LoRA(rank=2))
    vectors = rerank.MLP(hidden=[4], columns=["bm25"])
    vectors.prepare(lists, 1)
    for name, model in (("adapter", decoder), ("mlp", vectors)):
        Interpolated(model, {"bm25": 0.5}, 0.5).save(tmp_path / name)
        ranker = rerank.load(tmp_path / name)
        alone = lists.run(rerank.load(tmp_path / name, interpolate=False).predict(lists))
        assert told(lists.run(ranker.predict(lists))) == told(fuse([lists.run(), alone], [0.5, 0.5]))
        assert ranker.columns == ["bm25"] if name == "adapter" else ["bm25/bm25", "bm25"]
    assert len(rerank.load(tmp_path / "adapter").rank("a", ["b", "c"], columns={"bm25": [1, 2]})) == 2
    with pytest.raises(UserError, match="MLP reads no texts"):
        ranker.rank("a", ["b"], columns={"bm25": [1]})


def test_rank_passes_first_stage_columns_to_the_model(text_model: Path) -> None:
    ranker: Any = Interpolated(CrossEncoder(str(text_model), residual_columns="bm25"), {"dense": 1}, 1)
    assert ranker.given == ["bm25", "dense"] and set(ranker.columns) == {"bm25:z100", "dense"}
    columns = {"bm25": [3, 1, None], "dense": [None, 1, 2]}
    alone = {one["corpus_id"]: one["score"] for one in ranker.model.rank("heat", ["a", "b", "c"], columns=columns)}
    runs = [{"q": [Scored(str(i), alone[i]) for i in alone]}, {"q": [Scored("2", 2), Scored("1", 1)]}]
    fused = fuse([{"q": [Scored(str(i), 0.0) for i in range(3)]}, runs[1], runs[0]], [0, 1, 1])["q"]
    ranked = ranker.rank("heat", ["a", "b", "c"], columns=columns, return_documents=True)
    assert [str(one["corpus_id"]) for one in ranked] == [scored.id for scored in fused]
    assert [one["text"] for one in ranked] == ["abc"[one["corpus_id"]] for one in ranked]


def test_ranker_loads_from_the_hub_as_from_its_folder(
    text_model: Path, tmp_path: Path, lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "models--me--ranker"
    ranker = Interpolated(rerank.load(text_model), {"bm25": 0.5}, 0.5)
    ranker.save(cached / "snapshots" / "1234")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("1234")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert (rerank.load("me/ranker").predict(lists) == ranker.predict(lists)).all()


BAD: dict[str, tuple[Callable[[Any], object], str]] = {
    "no columns": (lambda fusion: Interpolated(None, {}), "interpolation: all weights are 0"),
    "not a number": (lambda fusion: Interpolated(None, {"bm25": float("nan")}), "bm25: .*not nan"),
    "a text without model": (lambda fusion: Interpolated(None, {"bm25": 1}, 1), "text: .*there is none"),
    "a fusion alone": (lambda fusion: rerank.load(fusion, interpolate=False), "columns without a model"),
    "texts": (lambda fusion: rerank.load(fusion).predict([("a", "b")]), "expected lists, not .* or use rank"),
    "no text": (lambda fusion: rerank.load(fusion).rank("a", [None]), "expected texts, not None"),
    "no column": (lambda fusion: rerank.load(fusion).rank("a", ["b"]), "interpolates with column bm25"),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_interpolations_are_refused_in_one_line(case: str, tmp_path: Path) -> None:
    Interpolated(None, {"bm25": 1}).save(tmp_path)
    work, match = BAD[case]
    with pytest.raises(UserError, match=match) as refused:
        work(tmp_path)
    assert "\n" not in str(refused.value)
