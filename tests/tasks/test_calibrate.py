"""`rerank.calibrate`: saved probabilities are those that were fitted, and scores do not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rerank
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.models.base import Model
from rerank.models.folder import CALIBRATION, add_to_contract, read_contract
from rerank.models.load import Interpolated, load_model
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.scoring.in_sample import remember
from tests.builders import contents, write_features


def judged_by(model: Model, lists: Lists, irrelevant: bool = True) -> Lists:
    """Judge lists so that a higher score makes relevance more likely; optionally judge relevant documents only."""
    scores = model.predict(lists).astype(float)
    likely = 1 / (1 + np.exp(0.5 - 2 * (scores - scores.mean()) / scores.std()))
    frame = lists.to_dataframe()
    relevant = np.random.default_rng(0).random(len(frame)) < likely
    relevant[lists.offsets[:-1]] |= not irrelevant  # every query has a judgment
    frame["grade"] = np.where(relevant, 1.0, 0.0 if irrelevant else np.nan)
    return Lists.from_dataframe(frame)


@pytest.fixture
def best(tmp_path: Path, tiny_model: Path) -> Path:
    """The folder of a cross-encoder."""
    CrossEncoder(str(tiny_model), query_length=8, document_length=24).save(tmp_path / "text")
    return tmp_path / "text"


@pytest.fixture
def lists(best: Path, lists: Lists) -> Lists:
    return judged_by(load_model(best), lists)


@pytest.mark.parametrize("mixed", [False, True])
def test_calibrate_changes_probabilities_only(mixed: bool, best: Path, lists: Lists, tmp_path: Path) -> None:
    new = tmp_path / "new"
    if mixed:
        Interpolated(load_model(best), {"bm25": 0.5}, 0.5).save(tmp_path / "mixed")
        best = tmp_path / "mixed"
    calibration = rerank.calibrate(best, lists, output=new)
    before, after = contents(best), contents(new)
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == {"rerank.json"}
    model, scores = load_model(new), load_model(best).predict(lists)
    assert (model.predict(lists) == scores).all()
    expected = 1 / (1 + np.exp(-(calibration.a * scores.astype(float) + calibration.b)))
    assert model.probabilities(lists) == pytest.approx(expected, abs=1e-12)
    assert calibration.n == lists.size
    model.save(tmp_path / "copy")
    assert read_contract(tmp_path / "copy") == read_contract(new)
    if mixed:  # fitted to the interpolated scores
        with pytest.raises(UserError, match="not calibrated"):
            load_model(new, interpolate=False).probabilities(lists)
    rerank.calibrate(best, lists)
    assert contents(best) == after


def test_rank_returns_probabilities(best: Path, lists: Lists) -> None:
    rerank.calibrate(best, lists)
    model: Any = load_model(best)
    pairs = [("what is a wing", text) for text in ("a jet engine", "a wing gives lift", "heat")]
    ranked = model.rank(pairs[0][0], [text for _, text in pairs])
    assert [entry["probability"] for entry in ranked] == sorted(model.probabilities(pairs).tolist(), reverse=True)


def test_interpolating_drops_the_calibration(best: Path, lists: Lists, tmp_path: Path) -> None:
    rerank.calibrate(best, lists)
    Interpolated(load_model(best, interpolate=False), {"bm25": 0.5}, 0.5).save(tmp_path / "again")
    assert CALIBRATION not in read_contract(tmp_path / "again")


def test_unjudged_candidates_count_if_only_relevant_documents_are_judged(best: Path, lists: Lists) -> None:
    plain = judged_by(load_model(best), lists, irrelevant=False)
    assert rerank.calibrate(best, plain).n == plain.size
    frame = lists.to_dataframe()
    frame["grade"] = frame["grade"].where(np.arange(len(frame)) % 3 > 0)  # a third is unjudged
    assert rerank.calibrate(best, Lists.from_dataframe(frame)).n == int(frame["grade"].notna().sum())


def test_grade_separates_relevant_candidates(best: Path, lists: Lists) -> None:
    frame = lists.to_dataframe()
    twice = frame.assign(grade=frame["grade"] * 2 + (np.arange(len(frame)) % 2) * (frame["grade"] == 0))
    one = rerank.calibrate(best, lists)
    two = rerank.calibrate(best, Lists.from_dataframe(twice), grade=2)
    assert (one.a, one.b) == (two.a, two.b) and two.grade == 2


def test_command_calibrates(
    best: Path, lists: Lists, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    lists.save(tmp_path / "lists")
    words = ["calibrate", "--model", str(best), "--lists", str(tmp_path / "lists"), "--depth", "9"]
    words += ["--output", str(tmp_path / "new")]
    assert main(words) == 0
    assert "cross-validated log loss" in caplog.text
    assert read_contract(tmp_path / "new")[CALIBRATION]["n"] == lists.top(9).size
    assert main(words) == 2
    assert "exists already" in capsys.readouterr().err


def test_calibrate_rejects_unusable_input(best: Path, lists: Lists) -> None:
    before = contents(best)
    with pytest.raises(UserError, match="rerank calibrate --model FOLDER"):
        load_model(best).probabilities(lists)
    unjudged = Lists.from_dataframe(lists.to_dataframe().drop(columns="grade"))
    for given, message in (
        (lists.select([0, 2]), "2 judged queries are too few"),
        (unjudged, "has no judgments"),
    ):
        with pytest.raises(UserError, match=message):
            rerank.calibrate(best, given)
    with pytest.raises(UserError, match=r"--model: someone/model has no rerank\.json; name a folder"):
        rerank.calibrate("someone/model", lists)
    assert contents(best) == before
    add_to_contract(best, remember(lists.select([0, 2])))
    with pytest.raises(UserError, match=f"was trained on 2 of its {len(lists)} queries"):
        rerank.calibrate(best, lists)


def test_feature_file_is_read_as_in_training(tmp_path: Path) -> None:
    for name, features in (("train", 3), ("validation", 2)):
        write_features(tmp_path / f"{name}.txt", [6] * 30, features, seed=features)
    words = ["--data=LetorData", f"--data.train={tmp_path / 'train.txt'}", "--data.validation_fraction=0.2"]
    words += ["--test=false", "--model=MLP", "--loss=ListNet", "--epochs=2", f"--output={tmp_path / 'run'}"]
    assert main(["train", *words]) == 0
    rerank.calibrate(tmp_path / "run" / "best", tmp_path / "validation.txt")
