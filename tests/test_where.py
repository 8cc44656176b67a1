"""The study of where a metric can pay: networks that are trained together are those that are trained alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import zscore

from rerank.evaluation.measures import evaluate
from tests.builders import write_folds

pytestmark = pytest.mark.slow

where: Any = import_module("scripts.try.where")
averages: Any = import_module("scripts.try.averages")


@pytest.fixture
def exact() -> Iterator[None]:
    """Sums of another order shall not turn two documents that are nearly equal."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def data(exact: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> Any:
    monkeypatch.setattr(where, "BM25", 0)
    monkeypatch.setitem(where.DESIGN, "epochs", 2)
    monkeypatch.setitem(where.DESIGN, "batch_size", 2)
    folds = write_folds(tmp_path / "folds")
    for number in range(2, 6):
        shutil.copytree(folds / "Fold1", folds / f"Fold{number}")
    return where.Queries.read(str(folds))


def test_ndcg_is_trec_evals() -> None:
    generator = torch.Generator().manual_seed(0)
    scores, grades = torch.randn(20, 30, generator=generator), torch.randint(4, (20, 30), generator=generator).float()
    grades[0] = 0
    scores[:, 25:], grades[:, 25:] = -torch.inf, 0
    names = [str(number) for number in range(30)]
    run = {str(q): [(names[d], float(scores[q, d])) for d in range(25)] for q in range(20)}
    qrels = {str(q): {names[d]: int(grades[q, d]) for d in range(25)} for q in range(20)}
    expected = evaluate(run, qrels, "nDCG@10").values[0]
    torch.testing.assert_close(where.ndcg(scores, grades), torch.tensor(expected).float())


def test_an_average_is_of_z_scores_within_lists() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = [torch.randn(3, 7, generator=generator) for _ in range(2)]
    expected = np.mean([zscore(one[:, :5], axis=1) for one in scores], axis=0)
    for one in scores:
        one[:, 5:] = -torch.inf
    found = averages.averaged(scores)
    torch.testing.assert_close(found[:, :5], torch.tensor(expected).float())
    assert (found[:, 5:] == -torch.inf).all()


@pytest.mark.parametrize("condition", list(where.DESIGN["conditions"]))
def test_a_network_does_not_depend_on_those_trained_with_it(data: Any, condition: str) -> None:
    settings = [where.Setting(fold, seed, 0.01, 1.0) for seed in (1, 2, 3) for fold in range(len(data.folds))]
    settings += [where.Setting(fold, 1, 0.03, 3.0) for fold in range(len(data.folds))]  # steeper ones enlarge rounding
    about = where.DESIGN["conditions"][condition] | {"epochs": 2} | ({"documents": 3} if condition == "cut" else {})
    together = where.trained(data, about, where.LOSSES["SmoothI"], settings)
    some = [setting for setting in settings if setting.seed == 1]
    alone = where.trained(data, about, where.LOSSES["SmoothI"], some)
    places = [settings.index(setting) for setting in some]
    torch.testing.assert_close(alone[0], together[0][places])
    for ours, place in zip(alone[1], places, strict=True):
        torch.testing.assert_close(ours, together[1][place])
    assert len({tuple(scores.flatten().tolist()) for scores in together[1]}) > 1


@pytest.mark.parametrize("bias", [False, True])
def test_each_step_is_adams(bias: bool) -> None:
    rngs = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    ours, features = where.Networks("MLP", 5, rngs, bias), torch.randn(7, 5)
    weights = [*ours.weights, *([ours.bias] if bias else [])]
    theirs = [[weight[i].detach().clone().requires_grad_() for weight in weights] for i in range(2)]
    optimizers = [torch.optim.Adam(weights, lr=rate) for weights, rate in zip(theirs, (0.1, 0.01), strict=True)]
    for _ in range(3):
        (ours(features) ** 2).sum().backward()
        ours.step(torch.tensor([0.1, 0.01]))
        for (first, inner, last, *outer), optimizer in zip(theirs, optimizers, strict=True):
            optimizer.zero_grad()
            (((features @ first + inner).relu() @ last + sum(outer)) ** 2).sum().backward()
            optimizer.step()
    for number, own in enumerate(theirs):
        for mine, weight in zip(weights, own, strict=True):
            torch.testing.assert_close(mine[number], weight, rtol=1e-4, atol=1e-5)
