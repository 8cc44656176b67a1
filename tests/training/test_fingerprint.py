"""Fingerprints of trainings: what counts, and what does not."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rerank.lists import Lists
from rerank.lists.data import ListsData
from rerank.losses import ListNet, SmoothINDCG
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.mlp import MLP
from rerank.storage.fingerprint import fingerprint, first_difference
from rerank.training.config import Optimization, TrainConfig
from rerank.training.run_folder import resolve
from tests.builders import make_lists, make_model


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    data = ListsData(str(make_lists(tmp_path).store.folder), validation_fraction=0.3)
    return TrainConfig(data, MLP(hidden=[4], columns=["bm25"]), SmoothINDCG(alpha=10.0))


def of(config: TrainConfig) -> str:
    return fingerprint(resolve(config, config.data.splits(config.seed)))


def test_fingerprint_counts_settings_but_not_logging_and_places(config: TrainConfig, tmp_path: Path) -> None:
    before = of(config)
    assert of(replace(config, tracker=[], checkpoint_every=3)) == before
    assert of(replace(config, optimization=Optimization(warmup=0.1))) == before
    for changed in ({"epochs": 2}, {"loss": ListNet()}, {"optimization": Optimization(warmup=0.2)}, {"seed": 1}):
        assert of(replace(config, **changed)) != before, changed
    shutil.copytree(tmp_path / "lists", tmp_path / "moved")
    assert of(replace(config, data=ListsData(str(tmp_path / "moved"), validation_fraction=0.3))) == before


@pytest.mark.parametrize(("column", "value", "what"), [("grade", 3, "labels"), ("text", "other", "texts")])
def test_resolve_tells_which_lists_and_what_of_them_changed(
    config: TrainConfig, tmp_path: Path, column: str, value: object, what: str
) -> None:
    def resolved(frame: pd.DataFrame, name: str) -> dict[str, Any]:
        folder = Lists.from_dataframe(frame).save(tmp_path / name).store.folder
        return resolve(
            config, ListsData(str(folder), validation_fraction=0.3, leakage_groups="none").splits(config.seed)
        )

    frame = Lists.open(tmp_path / "lists").to_dataframe()
    before = resolved(frame, "before")
    rows = frame.query_id == "q4"
    frame.loc[rows if column == "grade" else frame.doc_id == frame.doc_id[rows].iloc[0], column] = value
    difference = first_difference(before, resolved(frame, "after"))
    assert difference is not None and difference[0] == f"data.train.{what}"


def test_initial_model_counts_by_its_files(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    make_model(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "moved")
    make_model(tmp_path / "other", hidden=16)
    data = ListsData(str(lists.store.folder))
    found = []
    for name in ("one", "moved", "other"):
        config = TrainConfig(data, CrossEncoder(str(tmp_path / name), query_length=8), ListNet())
        found.append(resolve(config, data.splits(config.seed)))
    assert found[0] == found[1] != found[2]
