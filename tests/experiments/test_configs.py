"""The experiments under configs/ are read by their own parser and by training's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerank.configs import read_config
from rerank.experiments.command import experiment
from tests.conftest import ROOT

FILES = sorted(path for path in (ROOT / "configs").rglob("*.yaml") if path.parent.name != "base")
EXPERIMENTS = [path for path in FILES if "methods" in read_config(path)]


def test_there_are_some() -> None:
    assert len(EXPERIMENTS) >= 26


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_cell_is_a_training_configuration(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = read_config(path)
    key = next(key for key in ("path", "lists", "train") if key in config["base"]["data"]["init_args"])
    assert experiment([f"--config={path}", f"--base.data.{key}=elsewhere", "--dry-run"]) == 0
    groups = len(config["methods"]) * len(config.get("folds") or [None]) * len(config.get("seeds", [42]))
    assert f" cells, {groups} of them measured on test" in capsys.readouterr().out
    assert all(f"{name}.png" in path.read_text() for name in config.get("figures", {})), "it says what is drawn"
    assert f"--config configs/{path.relative_to(ROOT / 'configs')}" in path.read_text(), "it says how to run it"
