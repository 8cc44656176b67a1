from __future__ import annotations

from pathlib import Path

import pytest

import rerank
from rerank.models.folder import add_to_contract
from rerank.models.load import Interpolated
from tests.builders import INSTRUCTED, make_decoder


@pytest.fixture(scope="package")
def folders(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> dict[str, Path]:
    """Save a ranker of texts of every kind, and a network over features that is not among them."""
    place = tmp_path_factory.mktemp("rankers")
    rerank.CrossEncoder(str(tiny_model)).save(place / "text")
    text = rerank.load(place / "text")
    start = rerank.CrossEncoder(str(place / "text"), query_length=8, document_length=16, residual_columns="bm25")
    start.save(place / "start")
    network = rerank.MLP(hidden=[4], columns=["x"])
    network.prepare(rerank.Lists.from_dataframe({"query_id": [1], "doc_id": [1], "x": [1.0]}), 1)
    network.save(place / "features")
    Interpolated(text, {"bm25": 0.3, "dense": 0.2}, 0.5).save(place / "mixed")
    Interpolated(None, {"bm25": 0.6, "dense": 0.4}).save(place / "fusion")
    text.save(place / "calibrated")
    add_to_contract(place / "calibrated", {"calibration": {"a": 2.0, "b": -0.5, "grade": 1, "n": 99}})
    made = str(make_decoder(place / "qwen", prompt=INSTRUCTED))
    decoder = rerank.Decoder(made, instruction="Rank", query_length=16, document_length=32)
    decoder.save(place / "decoder")
    return {name: place / name for name in ("text", "start", "mixed", "fusion", "calibrated", "decoder")}
