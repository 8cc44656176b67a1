"""Training configurations for text under configs/."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rerank.settings.parser import read_config
from rerank.training.configuration import check
from tests.builders import make_lists, train
from tests.conftest import ROOT

FOLDERS = ("dl", "msmarco", "recipes", "scifact")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / "configs" / folder).glob("*.yaml"))]
CONFIGS = [path for path in FILES if "methods" not in read_config(path)]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_config_is_valid_and_names_its_command(path: Path) -> None:
    check([f"--config={path}"])
    assert f"--config {path.relative_to(ROOT)}" in path.read_text()
    if path.parent.name == "msmarco":
        assert read_config(path)["output"] == f"runs/msmarco-{path.stem}"


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in CONFIGS if p.parent.name == "msmarco"], ids=lambda path: path.stem)
def test_ms_marco_recipe_trains(path: Path, tiny_model: Path, tmp_path: Path) -> None:
    """Train two steps on small lists: the loss is finite, and the model is measured."""
    lists = make_lists(tmp_path / "train")
    words = [f"--data.train={lists.store.folder}", "--data.test=null", "--data.validation_fraction=0.3"]
    words += [f"--model.name={tiny_model}", "--epochs=1", "--steps_per_epoch=2", "--model.document_length=64"]
    measures = train([f"--config={path}", *words, f"--output={tmp_path / 'run'}"])
    assert 0 < measures["validation"]["RR@10"] <= 1
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [0 < step["loss"] < 1000 for step in logged if "loss" in step] == [True, True]
