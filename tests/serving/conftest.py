from __future__ import annotations

from pathlib import Path

import pytest

import rerank
from rerank.models.contract import add_to_contract
from rerank.models.interpolated import Interpolated
from tests.builders import INSTRUCTED, make_decoder, make_rankers


@pytest.fixture(scope="package")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Save a ranker of texts of every kind."""
    place = tmp_path_factory.mktemp("rankers")
    found = make_rankers(place)
    text = rerank.load(found["text"])
    Interpolated(text, {"bm25": 0.3, "dense": 0.2}, 0.5).save(place / "mixed")
    Interpolated(None, {"bm25": 0.6, "dense": 0.4}).save(place / "fusion")
    text.save(place / "calibrated")
    add_to_contract(place / "calibrated", {"calibration": {"a": 2.0, "b": -0.5, "grade": 1, "n": 99}})
    made = str(make_decoder(place / "qwen", prompt=INSTRUCTED))
    decoder = rerank.Decoder(made, instruction="Rank", query_length=16, document_length=32)
    decoder.save(place / "decoder")
    return {name: place / name for name in ("text", "start", "mixed", "fusion", "calibrated", "decoder")}
