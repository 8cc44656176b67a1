from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from rerank.commands.cli import main
from rerank.lists import Lists
from rerank.training.configuration import configuration
from rerank.training.dry_run import dry_run
from tests.builders import contents
from tests.training.helpers import by_two


def words_of(place: Path, output: Path, *more: str) -> list[str]:
    data = ["--data", "ListsData", "--data.train", str(place / "a")]
    given = ["--data.validation", str(place / "b"), "--data.test", str(place / "c")]
    return ["train", *data, *given, "--data.depth", "5", *more, "--output", str(output), "--dry_run"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lists of three collections of other queries."""
    place = tmp_path_factory.mktemp("cost")
    for number, name in enumerate("abc"):
        rows = [(query, document) for query in range(12) for document in range(4 + number)]
        frame = pd.DataFrame(rows, columns=["query_id", "doc_id"])
        frame = frame.assign(grade=(frame["doc_id"] == 1) * (frame["query_id"] > 0), bm25=10.0 - frame["doc_id"])
        ids = {key: name + frame[key].astype(str) for key in ("query_id", "doc_id")}
        frame = frame.assign(query=ids["query_id"], text="wing " * (1 + number), **ids)
        Lists.from_dataframe(frame).save(place / name)
    return place


def test_dry_run_estimates_time_and_writes_nothing(
    place: Path, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["--model", "CrossEncoder", "--model.name", str(tiny_model), "--model.document_length", "24"]
    options = [*model, "--loss", "ListNet", "--epochs", "3", "--batch_size", "4", "--precision", "fp32"]
    before = contents(tiny_model)
    assert main(words_of(place, tmp_path / "run", *options)) == 0
    assert not (tmp_path / "run").exists() and contents(tiny_model) == before
    training, scoring, measured, estimate = capsys.readouterr().out.splitlines()
    # one list has nothing to learn from
    assert training == "training: 12 lists of 48 candidates, 9 steps over 3 epochs"
    assert scoring == "scoring: 360 candidates in all validations and tests"
    assert re.search(r"measured here: [\d.e+]+ lists/s in training, [\d.e+]+ documents/s in scoring", measured)
    assert estimate.startswith("estimate: ") and estimate.endswith(" (h:min:s) on this device")


def test_main_process_of_two_estimates(place: Path, tmp_path: Path) -> None:
    options = ["--model", "MLP", "--model.columns", "[bm25]", "--loss", "ListNet", "--batch_size", "4"]
    config, output = configuration(words_of(place, tmp_path / "run", *options)[1:-1])
    main_process, other = by_two(tmp_path, lambda process: dry_run(config, output))
    assert "estimate: " in main_process and other == ""


def test_dry_run_counts_lists_of_trees(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words_of(place, tmp_path / "run", "--model", "LightGBM", "--model.columns", '["bm25"]')) == 0
    assert "training: 12 lists of 48 candidates; trees" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--data.test", "nowhere"], "nowhere: not a lists folder"),
        (["--model.name", "nowhere/model"], "nowhere/model: neither a folder"),
        (["--model.residual_columns", "splade"], "no column 'splade'"),
        (["--sampler", "PositivesNegatives", "--sampler.positives", "0"], "positives"),
    ],
)
def test_dry_run_refuses_missing_inputs(
    place: Path,
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    message: str,
) -> None:
    usual = ["--model", "CrossEncoder", "--model.name", str(tiny_model), "--loss", "ListNet"]
    assert main(words_of(place, tmp_path / "run", *usual, *more)) == 2
    assert message in capsys.readouterr().err
