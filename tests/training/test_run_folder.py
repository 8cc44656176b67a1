"""Run folders: what goes on in which, what is refused and how it is said, whatever moment a kill comes at."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rerank
from rerank.errors import UserError
from rerank.features.letor import LetorData
from rerank.lists import Lists
from rerank.lists.data import ListsData
from rerank.losses import ListNet, SmoothINDCG
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.networks import MLP
from rerank.models.vectors.trees import LightGBM
from rerank.training.config import Optimization, TrainConfig
from rerank.training.fit import fit
from rerank.training.run_folder import resolve
from tests.builders import contents, make_lists, make_model, write_features, write_folds
from tests.forked import Command
from tests.training.helpers import metrics

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    data = LetorData(str(write_folds(tmp_path / "made")), 1)
    loss = SmoothINDCG(alpha=np.float64(10))
    return TrainConfig(data, MLP(hidden=[4]), loss, epochs=2, checkpoint_every=1)


def test_fit_returns_a_finished_run(config: TrainConfig, tmp_path: Path) -> None:
    first = fit(config, tmp_path / "run")
    before = contents(tmp_path / "run")
    again = fit(replace(config, gradient="cached", tracker=[], checkpoint_every=5), tmp_path / "run")
    assert (again.fingerprint, again.results) == (first.fingerprint, first.results)
    assert contents(tmp_path / "run") == before
    shutil.move(tmp_path / "run", tmp_path / "moved")
    shutil.move(tmp_path / "made", tmp_path / "elsewhere")
    moved = replace(config, data=LetorData(str(tmp_path / "elsewhere"), 1))
    assert fit(moved, tmp_path / "moved").fingerprint == first.fingerprint, "folders do not count"


def test_fit_starts_anew_with_a_trained_object(tmp_path: Path, tiny_model: Path) -> None:
    """Fresh weights follow from the seed alone, and from nothing that was drawn or trained before."""
    make_lists(tmp_path)
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    data = ListsData(str(tmp_path / "lists"), validation_fraction=0.2)
    config = TrainConfig(data=data, model=model, loss=ListNet(), batch_size=4, seed=7, precision="fp32")
    weights = [fit(config, tmp_path / name).folder / "best" / "model.safetensors" for name in ("one", "two")]
    fresh = replace(config, model=CrossEncoder(str(tiny_model), query_length=8, document_length=24))
    weights.append(fit(fresh, tmp_path / "three").folder / "best" / "model.safetensors")
    assert len({path.read_bytes() for path in weights}) == 1
    assert (tmp_path / "three") == fit(replace(fresh, token_budget=64), tmp_path / "three").folder, "the same run"


def test_fit_raises_with_the_key_when_settings_differ(config: TrainConfig, tmp_path: Path) -> None:
    fit(config, tmp_path / "run")
    before = contents(tmp_path / "run")
    changes: list[tuple[dict[str, Any], str]] = [
        ({"loss": SmoothINDCG(alpha=1.0)}, "loss.alpha was 10, now 1"),
        ({"loss": ListNet()}, "loss was SmoothINDCG, now ListNet"),
        ({"optimization": Optimization(head_lr=0.5)}, "optimization.head_lr was 0.001, now 0.5"),
        ({"model": MLP(hidden=[4, 2])}, r"model.hidden was \[4\], now \[4, 2\]"),
        ({"token_budget": 64}, "token_budget was None, now 64"),
    ]
    for change, message in changes:
        with pytest.raises(UserError, match=f"run: {message}; name another output, or remove the folder"):
            fit(replace(config, **change), tmp_path / "run")
    assert contents(tmp_path / "run") == before


def test_fit_raises_when_lists_changed(config: TrainConfig, tmp_path: Path) -> None:
    fit(config, tmp_path / "run")
    file = tmp_path / "made" / "Fold1" / "vali.txt"
    whole = file.read_text()
    file.write_text(("1" if whole[0] == "0" else "0") + whole[1:])
    with pytest.raises(UserError, match=r"data\.validation\.labels changed"):
        fit(config, tmp_path / "run")
    file.write_text(whole)
    write_features(tmp_path / "made" / "Fold1" / "test.txt", seed=9)
    with pytest.raises(UserError, match=r"data\.test\.\w+ changed"):
        fit(config, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["network", "trees"])
def test_fit_completes_a_run_killed_between_files(kind: str, config: TrainConfig, tmp_path: Path) -> None:
    """Files appear one after the other, by renames: a kill leaves the first ones of them."""
    if kind == "trees":
        config = replace(config, model=LightGBM(trees=3, min_data_in_leaf=2), loss=None)
    fit(config, tmp_path / "whole")
    order = ["log.txt", "fingerprint.json", "checkpoints", "config.yaml", "metrics.jsonl", "best", "environment.json"]
    for count in range(len(order) + 1):
        run = tmp_path / f"run-{count}"
        (run / ".best.01234567.tmp").mkdir(parents=True)
        (run / ".fingerprint.json.01234567.tmp").touch()
        for name in order[:count]:
            source = tmp_path / "whole" / name
            if name == "checkpoints":
                (run / name).mkdir()
            else:
                (shutil.copytree if source.is_dir() else shutil.copy)(source, run / name)
        fit(config, run)
        for name in ("results.json", "test.trec", "best/rerank.json", "fingerprint.json"):
            assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), (count, name)
        assert metrics(run) == metrics(tmp_path / "whole") and not list(run.glob(".*"))


def test_fit_raises_for_a_foreign_folder(config: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.yaml").write_text("output: old\n")
    for name in ("thesis", "old"):
        with pytest.raises(UserError, match="exists and is not a run folder"):
            fit(config, tmp_path / name)


def test_train_keeps_the_files_of_a_foreign_folder(lists: Lists, tmp_path: Path) -> None:
    (tmp_path / "chapter.tex").touch()
    mine = lists.select(slice(4)).save(tmp_path / "lists" / "train")
    with pytest.raises(UserError, match="exists and is not a run folder"):
        rerank.train(MLP(hidden=[4], columns=["bm25"]), lists.select(slice(2)), rerank.ListNet(), output=tmp_path)
    assert len(Lists.open(tmp_path / "lists" / "train")) == len(mine) == 4


@pytest.mark.slow
def test_fit_raises_when_the_folder_is_in_use(config: TrainConfig, tmp_path: Path) -> None:
    fit(config, tmp_path / "whole")
    words = [f"--config={tmp_path / 'whole' / 'config.yaml'}", f"--output={tmp_path / 'run'}", "--epochs=400"]
    processes = [Command(["train", *words]) for _ in range(2)]
    errors = [process.communicate(timeout=240) for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes, key=str) == [0, 2]
    last = errors[codes.index(2)].splitlines()[-1]
    assert "run: in use by another process" in last
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if "loss" in line]
    assert steps == list(range(1, len(steps) + 1)), "nothing is mixed"


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
