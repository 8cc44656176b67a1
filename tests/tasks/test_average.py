"""Weights of averages are chosen on lists, and what the models were trained on is not forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerank.evaluation.measures import evaluate
from rerank.features.letor import letor_lists
from rerank.lists.view import Lists
from rerank.models.contract import add_to_contract
from rerank.models.load import load_model
from rerank.models.mixed import write_ranker
from rerank.models.vectors.mlp import MLP
from rerank.scoring.in_sample import remember, shared_queries
from rerank.tasks.average import average, chosen
from tests.builders import write_features, write_folds


@pytest.fixture
def made(tmp_path: Path, home: Path) -> tuple[list[str], Lists, Lists]:
    """Four small networks from one draw, each trained on nothing but noise, and lists."""
    import torch

    train = letor_lists(write_folds(tmp_path) / "Fold1" / "train.txt")
    folders = []
    for seed in range(4):
        model = MLP(hidden=[8])
        model.prepare(train, 0)
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        folder = tmp_path / f"model{seed}"
        folder.mkdir()
        model.save(folder)
        add_to_contract(folder, remember(train.select([seed])))
        folders.append(str(folder))
    return folders, train, letor_lists(write_features(tmp_path / "other.txt", seed=7))


def value(model: str, lists: Lists) -> float:
    return evaluate(lists.run(load_model(model).predict(lists)), lists.qrels, "nDCG@5").mean["nDCG@5"]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_choice_is_no_worse_than_any_model_alone(
    tmp_path: Path, made: tuple[list[str], Lists, Lists], count: int
) -> None:
    folders, _, lists = made
    average(folders[:count], str(tmp_path / "average"), lists=str(tmp_path / "other.txt"), measure="nDCG@5")
    assert value(str(tmp_path / "average"), lists) >= max(value(folder, lists) for folder in folders[:count]) - 1e-6
    weights = chosen(folders[:count], lists, "nDCG@5")
    assert sum(weights) == pytest.approx(1) and min(weights) >= 0


def test_what_the_models_were_trained_on_is_remembered(tmp_path: Path, made: tuple[list[str], Lists, Lists]) -> None:
    folders, train, _ = made
    average(folders[:3], str(tmp_path / "average"))
    assert shared_queries(train, tmp_path / "average") == train.query_ids[:3]


def test_a_mixture_that_the_average_drops_is_named(
    tmp_path: Path, made: tuple[list[str], Lists, Lists], caplog: pytest.LogCaptureFixture
) -> None:
    folders, _, lists = made
    write_ranker(folders[1], {"features/1": 0.5}, text=0.5, output=tmp_path / "mixed")
    average([folders[0], str(tmp_path / "mixed")], str(tmp_path / "average"))
    assert "mixed mixes in columns, which the average does not" in caplog.text
    average(folders[:2], str(tmp_path / "alone"))
    assert value(str(tmp_path / "average"), lists) == value(str(tmp_path / "alone"), lists)
    assert caplog.text.count("mixes in") == 1
