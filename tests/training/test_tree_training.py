"""Trees through the trainer: LambdaMART, and any loss of ours as an objective."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from rerank.errors import UserError
from rerank.features.letor import letor_lists
from rerank.lists.view import Lists
from rerank.losses import BCE, ApproxNDCG, DirectMetric, LambdaLoss, ListMLE, ListNet, NeuralNDCG, RankNet, SmoothINDCG
from rerank.losses import TwinSigmoidNDCG as TwinSigmoid
from rerank.losses.base import Loss
from rerank.models.load import load_model
from rerank.models.vectors.trees import Trees
from rerank.relaxations import SmoothI
from rerank.storage.files import read_json
from rerank.training.batches import Targets
from rerank.training.trees import Objective
from tests.builders import train, write_features
from tests.evaluation.scored import evaluate
from tests.training.helpers import metrics

LENGTHS = [20, 1, 7, 13, 20, 2, 16, 5, 20, 11, 3, 18] * 3


def name(value: object) -> str:
    """The same in every process, which a loss without a ``repr`` of its own is not."""
    if isinstance(value, DirectMetric):
        return f"{value.measure} {type(value.relaxation).__name__}"
    return type(value).__name__ if isinstance(value, Loss) else str(value)


pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    return letor_lists(write_features(tmp_path / "features.txt", LENGTHS))


def objective(loss: Loss, lists: Lists, seed: int = 0) -> Objective:
    return Objective(Targets(lists, loss), Targets(lists, loss).usable(), seed)


def slices(lists: Lists) -> Iterator[slice]:
    for start, end in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):
        yield slice(int(start), int(end))


SMOOTHI_AP = DirectMetric("AP", SmoothI())
FIXED: list[Loss] = [SmoothINDCG(), SMOOTHI_AP, ApproxNDCG(), NeuralNDCG(), ListNet(), RankNet(), BCE()]
RANDOM: list[Loss] = [TwinSigmoid(), ListMLE(), LambdaLoss()]
"""Break ties at random: of scores, or of labels."""


@pytest.mark.parametrize(
    ("loss", "tied"), [*((loss, tied) for loss in FIXED for tied in (False, True)), (LambdaLoss(), False)], ids=name
)
def test_objective_gradient_equals_that_of_single_lists(loss: Loss, tied: bool, lists: Lists) -> None:
    scores = np.random.default_rng(0).normal(size=lists.size) * (not tied)
    found, value = objective(loss, lists).gradient(scores)
    total = 0.0
    for part in slices(lists):
        alone = torch.tensor(scores[None, part], dtype=torch.float32, requires_grad=True)
        one = loss(alone, torch.tensor(lists.grades[None, part], dtype=torch.float32))
        one.backward()
        assert alone.grad is not None
        np.testing.assert_allclose(found[part], alone.grad[0], rtol=2e-4, atol=2e-6)
        total += one.item()
    assert value == pytest.approx(total / len(Targets(lists, loss).usable()), rel=1e-5)


@pytest.mark.parametrize("loss", RANDOM, ids=name)
def test_objective_draws_by_list_and_tree(loss: Loss, lists: Lists) -> None:
    zeros = np.zeros(lists.size)
    first, _ = objective(loss, lists).gradient(zeros, 3)
    again, _ = objective(loss, lists).gradient(zeros, 3)
    np.testing.assert_array_equal(first, again)
    for other in (objective(loss, lists).gradient(zeros, 4)[0], objective(loss, lists, seed=1).gradient(zeros, 3)[0]):
        assert (first != other).any()
    order = np.random.default_rng(0).permutation(len(lists))[:20]
    moved, _ = objective(loss, lists.select(order)).gradient(zeros[: int(lists.lengths[order].sum())], 3)
    parts = list(slices(lists))
    np.testing.assert_allclose(moved, np.concatenate([first[parts[i]] for i in order]), rtol=1e-4, atol=1e-7)


def test_objective_normalises_gradient_and_hessian(lists: Lists) -> None:
    scores = np.random.default_rng(0).normal(size=lists.size)
    loss = SmoothINDCG()
    made = objective(loss, lists)
    gradient, hessian = made(scores)
    for i, part in enumerate(slices(lists)):
        learnable = i in Targets(lists, loss).usable()
        np.testing.assert_allclose(hessian[part], float(learnable), rtol=1e-5)
        assert (gradient[part] == 0).all() or learnable
    assert np.abs(gradient[hessian > 0]).mean() == pytest.approx(1, rel=1e-5)
    plain, _ = made.gradient(scores)
    assert np.corrcoef(gradient, plain)[0, 1] == pytest.approx(1)


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    folder = tmp_path / "made"
    for seed, name in enumerate(("train", "vali", "test"), start=1):
        write_features(folder / "Fold1" / f"{name}.txt", LENGTHS, seed=seed)
    return [
        *("--data=LetorData", f"--data.path={folder}", "--data.fold=1", "--model=LightGBM", "--model.trees=30"),
        *("--model.learning_rate=0.2", "--monitor=nDCG@5"),
    ]


@pytest.mark.parametrize(("kind", "loss"), [("LightGBM", ["--loss=SmoothINDCG"]), ("XGBoost", [])])
def test_tree_run_folder_is_that_of_a_network(kind: str, loss: list[str], options: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    measures = train([*options, f"--model={kind}", *loss, f"--output={run}", "--test=false"])
    assert read_json(run / "results.json")["validation"]["model"]["mean"] == measures["validation"]
    assert set(measures) == {"validation"}
    curve = metrics(run)
    assert [line["step"] for line in curve] == list(range(1, 31))
    values = [line["validation"]["nDCG@5"] for line in curve]  # type: ignore[index]
    assert max(values) > 0.75
    assert measures["validation"]["nDCG@5"] == pytest.approx(max(values))
    contract = json.loads((run / "best" / "rerank.json").read_text())
    assert contract["trees"] == 1 + int(np.argmax(values))
    if loss:
        assert curve[-1]["loss"] < curve[0]["loss"]  # type: ignore[operator]

    model = load_model(run / "best")
    assert isinstance(model, Trees)
    again = tmp_path / "again"
    tested = train([*options, f"--model={kind}", *loss, f"--output={again}"])
    lists = letor_lists(tmp_path / "made" / "Fold1" / "test.txt")
    direct = evaluate(lists.run(model.predict(lists)), lists.qrels, "nDCG@5").mean["nDCG@5"]
    assert tested["test"]["nDCG@5"] == pytest.approx(direct)
    assert (again / "test.trec").is_file() and not (run / "test.trec").exists()
    assert metrics(again) == curve


def test_patience_stops_trees_and_keeps_the_best(options: list[str], tmp_path: Path) -> None:
    long, short = tmp_path / "long", tmp_path / "short"
    train([*options, f"--output={long}"])
    train([*options, f"--output={short}", "--patience=3"])
    values = [line["validation"]["nDCG@5"] for line in metrics(long)]  # type: ignore[index]
    best = 0
    for number, value in enumerate(values):
        if value > values[best]:
            best = number
        if number - best == 3:
            break
    assert metrics(short) == metrics(long)[: number + 1]
    assert number + 1 < len(values)
    assert json.loads((short / "best" / "rerank.json").read_text())["trees"] == best + 1


def test_without_validation_all_trees_are_kept(options: list[str], tmp_path: Path) -> None:
    lists = tmp_path / "made" / "Fold1" / "train.txt"
    data = ["--data=LetorData", f"--data.train={lists}", "--data.validation_fraction=0"]
    rest = [option for option in options if not option.startswith("--data")]
    assert train([*data, *rest, f"--output={tmp_path / 'run'}"]) == {}
    assert json.loads((tmp_path / "run" / "best" / "rerank.json").read_text())["trees"] == 30


@pytest.mark.parametrize(
    ("change", "lower"),
    [
        (
            ["--model.min_sum_hessian_in_leaf=200", "--model.num_leaves=400"],
            "min_sum_hessian_in_leaf or model.min_data",
        ),
        (["--model=XGBoost", "--model.min_child_weight=1e6"], "min_child_weight"),
    ],
)
def test_trees_raise_when_the_first_does_not_split(
    change: list[str], lower: str, options: list[str], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"first tree finds nothing to split; lower model.{lower}"):
        train([*options, *change, f"--output={tmp_path / 'run'}"])


def test_trees_refuse_lists_without_grades(options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "made" / "Fold1" / "train.txt"
    file.write_text("".join("0" + line[1:] for line in file.read_text().splitlines(keepends=True)))
    for loss in ([], ["--loss=ListNet"]):
        with pytest.raises(UserError, match="has anything to learn from"):
            train([*options, *loss, f"--output={tmp_path / 'run'}"])
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.parametrize(
    ("kind", "loss", "said"),
    [
        ("XGBoost", ["--loss=ListNet"], "XGBoost has its own; leave it out, or give --model LightGBM"),
        ("LightGBM", ["--loss=Terms", '--loss.terms=[{"loss": "ListNet"}]'], "trees take a single loss of the grades"),
    ],
)
def test_trees_refuse_other_losses(kind: str, loss: list[str], said: str, options: list[str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        train([*options, f"--model={kind}", *loss, f"--output={tmp_path / 'run'}"])
