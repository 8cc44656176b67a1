"""Networks and trees read columns by their names, from whatever lists have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rerank.errors import UserError
from rerank.features.letor import letor_lists
from rerank.features.normalise import QueryZScore
from rerank.lists import Lists
from rerank.models.load import load_model
from rerank.models.vectors.base import columns_of, vectors
from rerank.models.vectors.networks import MLP
from rerank.models.vectors.trees import LightGBM, Trees, XGBoost
from tests.builders import make_lists, make_lists_with_added, write_features
from tests.models.vectors.test_trees import grown


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    """Lists of texts with three columns."""
    made = make_lists(tmp_path)
    rng = np.random.default_rng(0)
    made.store.add_column("two", rng.normal(size=(made.size, 2)), names=["a", "b"])
    made.store.add_column("noise", rng.normal(size=made.size))
    return made


def network(columns: list[str] | None, lists: Lists) -> MLP:
    model = MLP(hidden=[4], normalise=[QueryZScore()], columns=columns)
    model.prepare(lists, 42)
    return model


def lightgbm(columns: list[str] | None, lists: Lists) -> Trees:
    return grown(LightGBM(num_leaves=4, min_data_in_leaf=2, columns=columns), lists, trees=5)


def xgboost(columns: list[str] | None, lists: Lists) -> Trees:
    return grown(XGBoost(max_depth=2, columns=columns), lists, trees=5)


KINDS = {"network": network, "LightGBM": lightgbm, "XGBoost": xgboost}


@pytest.mark.parametrize("kind", KINDS)
def test_models_read_their_columns(kind: str, lists: Lists, tmp_path: Path) -> None:
    model = KINDS[kind](["bm25", "two/b"], lists)
    read, scores = np.stack([lists.column("bm25"), lists.matrix(["two"])[:, 1]], axis=1), model.predict(lists)
    np.testing.assert_array_equal(vectors(lists, model.names), read)
    model.save(tmp_path)
    lists.store.add_column("another", np.ones(lists.size))
    again = load_model(tmp_path)
    np.testing.assert_array_equal(again.predict(Lists.open(str(lists.store))), scores)
    assert again.contract() == model.contract() and model.names == ["bm25/bm25", "two/b"]
    assert columns_of(lists, again.columns) == model.names, "trained once more, it reads what it was trained on"


@pytest.mark.parametrize("kind", KINDS)
def test_models_find_features_by_name(kind: str, lists: Lists, tmp_path: Path, home: Path) -> None:
    """A file with more of them is read where the model's are; one with fewer, and texts, are refused."""
    path = write_features(tmp_path / "features.txt")
    some = letor_lists(path)
    model = KINDS[kind](None, some)
    lines = [line.split() for line in path.read_text().splitlines()]
    wider = [" ".join([*line[:2], f"0:{i}", *line[2:8], f"8:{-i}"]) for i, line in enumerate(lines)]
    (tmp_path / "wider.txt").write_text("\n".join(wider))
    other = letor_lists(tmp_path / "wider.txt")
    assert other.matrix(["features"]).shape[1] == 9
    np.testing.assert_array_equal(model.predict(other), model.predict(some))
    narrower = letor_lists(write_features(tmp_path / "narrower.txt", features=4))
    with pytest.raises(UserError, match=r"narrower.*the model reads features/1, features/2, … features/6; .*'5'"):
        model.predict(narrower)
    with pytest.raises(UserError, match=r"the model reads features/1.*has no column 'features'; there are bm25"):
        model.predict(lists)
    with pytest.raises(UserError, match=r"holds texts.*model\.columns.*bm25, noise, two"):
        KINDS[kind](None, lists)


def test_models_refuse_gaps_that_reveal_relevance(tmp_path: Path) -> None:
    """BM25 has no value for the documents that were added, all of them relevant; trees could read that."""
    lists = make_lists_with_added(tmp_path)
    network, trees = MLP(hidden=[4], columns=["bm25"]), LightGBM(columns=["bm25"])
    network.prepare(lists, 0)
    for read in (network.inputs, trees.prepare):
        with pytest.raises(UserError, match=r"bm25/bm25 has no value for .*added"):
            read(lists.with_added())
    trees.prepare(lists)


def test_trees_read_missing_scores_and_networks_refuse_them(lists: Lists) -> None:
    gaps = lists.column("bm25").astype(np.float64)
    gaps[::3] = np.nan
    lists.store.add_column("gaps", gaps)
    assert np.isfinite(lightgbm(["gaps"], lists).predict(lists)).all()
    with pytest.raises(UserError, match=f"gaps/gaps has no value for {len(gaps[::3])} candidates"):
        model = MLP(hidden=[4], columns=["gaps"])
        model.prepare(lists, 0)
        model.inputs(lists)
