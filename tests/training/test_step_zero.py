"""The model before its first step is measured, and stays where no epoch is better."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rerank.lists.data import Splits
from rerank.models.vectors.networks import MLP
from rerank.training.configuration import configuration
from rerank.training.fit import Training, fit
from tests.builders import write_folds
from tests.evaluation.scored import evaluate

pytestmark = pytest.mark.usefixtures("home")


def trained(folder: Path, *words: str) -> tuple[Training, Splits]:
    if not (folder / "made").exists():
        write_folds(folder / "made")
    usual = ["--data=LetorData", f"--data.path={folder / 'made'}", "--data.fold=1", "--model=MLP", "--loss=ListNet"]
    usual += ["--model.hidden=[16]", "--monitor=nDCG@5", "--measures=AP", f"--output={folder / 'run'}"]
    config, output = configuration([*usual, *words])
    return fit(config, output), config.data.splits(config.seed)


def untouched(splits: Splits, seed: int = 42) -> MLP:
    model = MLP(hidden=[16])
    model.prepare(splits.train, seed)
    return model


def test_start_is_the_untrained_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rerank"):
        training, splits = trained(tmp_path, "--epochs=20", "--optimization.head_lr=3e-2")
    model = untouched(splits)
    for name, lists in (("validation", splits.validation), ("test", splits.test)):
        assert lists is not None and lists.qrels is not None
        expected = evaluate(lists.run(model.predict(lists)), lists.qrels, "nDCG@5 AP").mean
        found = getattr(training.results, name)
        assert found["start"].mean == pytest.approx(expected, abs=1e-12)
        shown = training.to_dataframe().set_index(["split", "ranking"])
        assert shown.loc[(name, "start"), "AP"] == pytest.approx(expected["AP"], abs=1e-12)
    assert training.results.best_epoch > 0
    assert any(line.startswith("  start  ") for line in caplog.messages)


def test_trainer_warns_when_the_monitor_is_0(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    training, _ = trained(tmp_path, "--epochs=1", "--monitor=RR(rel=9)")
    assert training.results.validation["model"].mean["RR(rel=9)"] == 0
    assert "validation RR(rel=9) is 0 at its best, so it chose no model" in caplog.text


def test_trainer_keeps_the_start_when_epochs_are_worse(tmp_path: Path) -> None:
    """The labels of the training lists are turned round, so that every epoch is worse than the model that starts."""
    write_folds(tmp_path / "made")
    folder = tmp_path / "made" / "Fold1"
    lines = (folder / "train.txt").read_text().splitlines()
    (folder / "train.txt").write_text("".join(f"{2 - int(line[0])}{line[1:]}\n" for line in lines))
    training, splits = trained(
        tmp_path, "--epochs=5", "--optimization.head_lr=1e-1", f"--output={tmp_path / 'ruined'}", "--seed=3"
    )
    lists = splits.validation
    assert lists is not None
    epochs = training.history["validation/nDCG@5"].dropna()
    validation = training.results.validation
    start = validation["start"].mean["nDCG@5"]
    assert len(epochs) == 5 and (epochs < start).all(), "or the test shows nothing"
    assert validation["model"].mean["nDCG@5"] == start and training.results.best_epoch == 0
    assert (training.model.predict(lists) == untouched(splits, 3).predict(lists)).all()
