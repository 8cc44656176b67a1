"""Models that validation interpolated with the first stage: ``best/`` ranks as was measured, wherever it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rerank
from rerank.lists.data import FoldsData
from rerank.lists.view import Lists
from rerank.models.folder import read_contract
from rerank.models.load import Interpolated
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.networks import MLP
from rerank.models.vectors.trees import LightGBM
from rerank.retrieval.fuse import fuse
from rerank.retrieval.runs import Run
from rerank.training.config import TrainConfig
from rerank.training.fit import Training, fit
from tests.builders import make_lists
from tests.evaluation.scored import evaluate


def trained(lists: Lists, model: Any, output: Path) -> Training:
    """A training that learns nothing, so that the head is as it was drawn; the seed is one whose share is between."""
    data = FoldsData(str(lists.store.folder), 1, 3)
    still = rerank.Optimization(encoder_lr=0, head_lr=0)
    config = TrainConfig(data, model, rerank.ListNet(), optimization=still, epochs=1, monitor="nDCG", seed=3)
    return fit(config, output)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Training:
    place = tmp_path_factory.mktemp("mixes")
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    return trained(make_lists(place), model, place / "run")


@pytest.fixture
def best(text: Training) -> Path:
    return text.folder / "best"


@pytest.fixture
def held_out(text: Training) -> Lists:
    found = text.settings.data.splits(3).test
    assert found is not None
    return found


def ids(run: Run) -> dict[str, list[str]]:
    return {query: [scored.id for scored in ranked] for query, ranked in run.items()}


def test_fit_saves_the_interpolation_that_it_measured(text: Training, best: Path, held_out: Lists) -> None:
    weight, test = text.results.first_stage_weight, text.results.test
    assert weight is not None and 0 < weight < 1, "or the tests of this file show little"
    assert read_contract(best)["interpolation"] == {"columns": {"bm25": weight}, "text": 1 - weight}
    run = rerank.rerank_lists(str(best), held_out)
    alone = rerank.rerank_lists(rerank.load(best, interpolate=False), held_out)
    assert ids(run) == ids(fuse([held_out.run(), alone], [weight, 1 - weight]))
    assert held_out.qrels is not None
    assert evaluate(run, held_out.qrels, "nDCG").mean["nDCG"] == test["interpolated"].mean["nDCG"]
    alone = rerank.rerank_lists(rerank.load(best, interpolate=False), held_out)
    assert evaluate(alone, held_out.qrels, "nDCG").mean["nDCG"] == test["model"].mean["nDCG"]
    assert ids(alone) != ids(run)
    expected = test["interpolated"].mean["nDCG"] - test["first_stage"].mean["nDCG"]
    assert test["interpolated"].difference == pytest.approx(expected, abs=1e-12)
    assert f"{1 - weight:g} model + {weight:g} bm25" in str(text)


def test_fit_saves_no_interpolation_when_the_model_reads_the_first_stage(tmp_path: Path, tiny_model: Path) -> None:
    lists = make_lists(tmp_path)
    values = np.random.default_rng(0).normal(size=len(lists.store.document))  # what a share of bm25 is better than
    lists.store.add_column("noise", values)
    starting = CrossEncoder(str(tiny_model), query_length=8, document_length=24, residual_columns="bm25")
    vectors, trees = MLP(hidden=[4], columns=["bm25", "noise"]), LightGBM(trees=1, columns=["bm25", "noise"])
    for name, model in (("start", starting), ("vectors", vectors), ("trees", trees)):
        found = trained(lists, model, tmp_path / name)
        assert found.results.first_stage_weight or name == "start"
        assert "interpolation" not in read_contract(found.folder / "best")
        assert not isinstance(rerank.load(found.folder / "best"), Interpolated)
