"""Feature-based learning to rank through the same trainer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import rerank
from rerank import losses
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.features.letor import letor_lists
from rerank.lists.sampling import seed_of
from rerank.losses import DirectMetric
from rerank.losses.base import Loss
from rerank.models.vectors.base import FeatureNetwork
from rerank.models.vectors.networks import MLP, SelfAttention
from rerank.relaxations import SmoothI, TwinSigmoid
from rerank.retrieval.runs import read_run
from tests.builders import train, write_features, write_folds
from tests.evaluation.scored import evaluate
from tests.training.helpers import assert_same, assert_same_runs, gradients, metrics, stopping_at, weights

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    folder = write_folds(tmp_path / "made")
    return [
        *("--data=LetorData", f"--data.path={folder}", "--data.fold=1", "--model=MLP", "--model.hidden=[16]"),
        *("--loss=DirectMetric", "--loss.measure=nDCG", "--loss.relaxation=SmoothI", "--batch_size=4", "--epochs=3"),
        *("--optimization.head_lr=1e-2", "--optimization.schedule=constant", "--monitor=nDCG@5"),
    ]


@pytest.mark.parametrize("loss", [DirectMetric("nDCG@10", SmoothI()), DirectMetric("AP", TwinSigmoid())])
@pytest.mark.parametrize("make", [lambda: MLP(hidden=[8]), lambda: SelfAttention(8, 16, dropout=0.0)])
def test_gradient_does_not_depend_on_budget_or_buckets(
    make: object, loss: Loss, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = letor_lists(write_features(tmp_path / "train.txt"))
    torch.manual_seed(0)
    model: FeatureNetwork = make()  # type: ignore[operator]
    model.prepare(lists, 42)
    whole = gradients(model, lists, loss, token_budget=10**6)
    for budget, micro, elements in ((7, None, 10**6), (10**6, 2, 1), (10**6, None, 1), (1, 1, 40)):
        monkeypatch.setattr("rerank.training.batches.CPU_ELEMENTS", elements)
        parts = gradients(model, lists, loss, token_budget=budget, micro_batch_size=micro)
        assert parts[0] == pytest.approx(whole[0], rel=1e-5)
        torch.testing.assert_close(parts[1], whole[1], rtol=1e-4, atol=1e-6)


def test_mlp_learns_and_ranks_as_measured(options: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    measures = train([*options, "--epochs=20", f"--output={run}"])
    assert measures["test"]["nDCG"] > 0.85  # the first two features decide; a random order has about 0.6
    test_file = tmp_path / "made" / "Fold1" / "test.txt"
    words = ["rerank", "--model", str(run / "best"), "--lists", str(test_file), "--output", str(run / "x.trec")]
    assert main(words) == 0
    assert read_run(run / "x.trec") == read_run(run / "test.trec")
    lists = letor_lists(test_file)
    assert lists.qrels is not None
    found = evaluate(read_run(run / "x.trec"), lists.qrels, "nDCG").mean["nDCG"]
    assert found == pytest.approx(measures["test"]["nDCG"], abs=1e-9)


@pytest.mark.parametrize("kind", [rerank.MLP, rerank.LightGBM])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_train_raises_when_lists_lack_columns(kind: type, split: str, tmp_path: Path) -> None:
    """A column that they lack, and one that is narrower than in training."""
    words = {"query": ["a", "a", "b", "b"], "text": ["x", "y", "x", "y"], "grade": [1, 0, 0, 1], "bm25": [2, 1, 2, 1]}
    train_lists = rerank.Lists.from_dataframe({**words, "age": [1.0, 2.0, 3.0, 4.0]})
    others = rerank.Lists.from_dataframe({**words, "query": ["c", "c", "d", "d"]})
    given = {"validation": None, "test": None, split: others}
    with pytest.raises(UserError, match="no column 'age'"):
        rerank.train(kind(columns=["bm25", "age"]), train_lists, rerank.LambdaLoss(), output=tmp_path / "run", **given)
    wide = letor_lists(write_features(tmp_path / "train.txt", features=3))
    given[split] = letor_lists(write_features(tmp_path / "other.txt", features=2, seed=1))
    with pytest.raises(UserError, match="features/3"):
        rerank.train(kind(), wide, rerank.LambdaLoss(), output=tmp_path / "run", **given)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_interrupted_run_resumes(options: list[str], tmp_path: Path) -> None:
    """Stopped in the middle of an epoch, before its first checkpoint and later."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = [*options, "--checkpoint_every=2", "--epochs=6"]
    train([*options, f"--output={whole}"])
    for step in (2, 3, 8):
        with stopping_at(step):
            train([*options, f"--output={parts}"])
    train([*options, f"--output={parts}"])
    assert_same_runs(parts, whole)


@pytest.mark.parametrize(
    ("processes", "gradient", "said"),
    [("2", "full", "is over a whole batch, so one process trains"), ("1", "cached", "would count .* twice; set full")],
)
def test_batch_norm_is_refused_when_batches_are_cut(
    processes: str, gradient: str, said: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", processes)
    with pytest.raises(UserError, match=said):
        train([*options, "--model.batch_norm=before", f"--gradient={gradient}", f"--output={tmp_path / 'run'}"])


def test_gradients_are_clipped(options: list[str], tmp_path: Path) -> None:
    """Far above them it changes no bit; far below Adam's epsilon nothing moves any more."""
    options = [*options, "--optimization.weight_decay=0", "--checkpoint_every=1"]
    for name, norm in (("none", "null"), ("far", "1e9"), ("tight", "1e-15")):
        train([*options, f"--optimization.max_grad_norm={norm}", f"--output={tmp_path / name}"])
    assert_same(weights(tmp_path / "far"), weights(tmp_path / "none"))
    values = {
        name: [line["validation"] for line in metrics(tmp_path / name) if "validation" in line]
        for name in ("none", "tight")
    }
    assert values["tight"] == values["tight"][:1] * 3
    assert values["none"] != values["none"][:1] * 3


@pytest.mark.parametrize("loss", ["ListMLE", "SmoothINDCG"])
def test_epoch_by_loss_saves_the_lowest_validation_loss(loss: str, options: list[str], tmp_path: Path) -> None:
    """The saved model's loss over the validation lists is the lowest that was logged."""
    words = [word for word in options if not word.startswith("--loss")]
    run = tmp_path / "run"
    train([*words, f"--loss={loss}", "--select_epoch_by=loss", "--epochs=6", f"--output={run}"])
    logged = [line["validation_loss"] for line in metrics(run) if "validation_loss" in line]
    assert len(logged) == 6 and len(set(logged)) == 6
    lists = letor_lists(tmp_path / "made" / "Fold1" / "vali.txt")
    scores = MLP.load(run / "best").predict(lists)
    criterion, by_hand = getattr(losses, loss)(), []
    for i in range(len(lists)):
        row, seed = slice(lists.offsets[i], lists.offsets[i + 1]), seed_of(42, 0, lists.query_ids[i])
        one = torch.from_numpy(scores[row])[None], torch.from_numpy(lists.grades[row].astype(np.float32))[None]
        if criterion.learnable(one[1], torch.ones_like(one[0], dtype=torch.bool)).item():
            by_hand.append(float(criterion(*one, seeds=torch.tensor([seed]))))
    assert np.mean(by_hand) <= min(logged) + 1e-5, "or lower, before the first step"


def test_epoch_by_last_saves_the_last_epoch(options: list[str], tmp_path: Path) -> None:
    whole = train([*options, "--select_epoch_by=last", f"--output={tmp_path / 'last'}"])
    *_, last = [line for line in metrics(tmp_path / "last") if "validation" in line]
    assert whole["validation"]["nDCG@5"] == pytest.approx(last["validation"]["nDCG@5"])  # type: ignore[index]
