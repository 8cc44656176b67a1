"""Gradient-boosted trees: training, pruning to a number of trees, saving, loading."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from rerank.errors import UserError
from rerank.features.letor import letor_lists
from rerank.lists.view import Lists
from rerank.models.load import load_model
from rerank.models.vectors.trees import Gain, LightGBM, Trees, XGBoost
from tests.builders import write_features

KINDS: list[type[Trees]] = [LightGBM, XGBoost]
LENGTHS = [20, 1, 7, 13, 20, 2, 16, 5, 20, 11, 3, 18] * 4


@pytest.fixture
def lists(tmp_path: Path, home: Path) -> Lists:
    return letor_lists(write_features(tmp_path / "features.txt", LENGTHS))


def grown(model: Trees, lists: Lists, trees: int = 8, seed: int = 0, gain: Gain = "log2", own: bool = False) -> Trees:
    model.prepare(lists)
    model.begin(lists, lists, seed, gain, own)
    for _ in range(trees):
        assert model.grow(pull if own else None)
    return model


def pull(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squared distance to a sawtooth."""
    return scores - np.arange(len(scores)) % 7, np.ones(len(scores))


@pytest.mark.parametrize(("kind", "own"), [(LightGBM, False), (LightGBM, True), (XGBoost, False)])
def test_keep_and_save_preserve_scores(kind: type[Trees], own: bool, lists: Lists, tmp_path: Path) -> None:
    model, at = grown(kind(), lists, trees=0, own=own), []
    for _ in range(6):
        model.grow(pull if own else None)
        np.testing.assert_array_equal(model.scores("validation"), model.scores("train"))
        at.append(model.scores("validation").astype(np.float32))
    assert len({scores.tobytes() for scores in at}) == 6
    model.keep(4)
    assert model.count == 4
    np.testing.assert_array_equal(model.predict(lists), at[3])

    model.save(str(tmp_path / "new" / "best"))
    loaded = load_model(tmp_path / "new" / "best")
    assert type(loaded) is kind
    np.testing.assert_array_equal(loaded.predict(lists), at[3])
    assert loaded.contract() == model.contract()


@pytest.mark.parametrize("kind", KINDS)
def test_trees_depend_on_the_seed_but_not_on_threads(kind: type[Trees], lists: Lists) -> None:
    settings = {"params": {"feature_fraction" if kind is LightGBM else "colsample_bytree": 0.5}}
    threads = 2 if kind is LightGBM else 1
    same, other = (grown(kind(**settings), lists, seed=seed).predict(lists) for seed in (1, 2))
    np.testing.assert_array_equal(grown(kind(threads=threads, **settings), lists, seed=1).predict(lists), same)
    assert (same != other).any()


def test_params_that_would_have_no_effect_are_refused() -> None:
    for kind, name in ((LightGBM, "objective"), (LightGBM, "shrinkage_rate"), (XGBoost, "seed"), (XGBoost, "eta")):
        with pytest.raises(UserError, match=rf"model\.params: {name} is"):
            kind(params={name: 1})


def test_begin_uses_the_monitors_gain(lists: Lists) -> None:
    """y and 2^y - 1 are the same for grades 0 and 1, and not beyond."""
    frame = lists.to_dataframe()
    binary = Lists.from_dataframe(frame.assign(grade=frame["grade"].clip(upper=1)))
    for graded, same in ((binary, True), (lists, False)):
        linear, exponential = (grown(LightGBM(), graded, gain=gain).predict(lists) for gain in ("log2", "exp-log2"))
        assert (linear == exponential).all() == same


def test_load_refuses_a_truncated_file_that_would_abort_the_process(lists: Lists, tmp_path: Path) -> None:
    grown(LightGBM(), lists).save(tmp_path)
    path = tmp_path / LightGBM.file
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(UserError, match="is cut short"):
        load_model(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_constructor_names_a_missing_library(kind: type[Trees], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, kind.package, None)  # what Python does for a module that must not be imported
    with pytest.raises(UserError, match=rf"needs {kind.package}.*pip install 'rerank-direct\[ltr\]'"):
        kind()


def judged(length: int) -> Lists:
    grades = np.arange(length) % 2
    return Lists.from_dataframe(
        {"query_id": ["q"] * length, "doc_id": np.arange(length), "grade": grades, "bm25": -np.arange(length)}
    )


def test_begin_fails_when_a_list_is_too_long_for_lambdarank() -> None:
    model, lists = LightGBM(columns=["bm25"], threads=1), judged(10_001)
    with pytest.raises(UserError, match=r"list has 10,001 documents.*give --loss LambdaLoss"):
        grown(model, lists, 1)
    grown(model, lists, 1, own=True)
    grown(model, judged(10_000), 1)
