"""Rows of a table for the first stage, alone and mixed with each method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rerank
from rerank.commands.cli import main
from rerank.commands.experiment import experiment
from rerank.evaluation.measures import evaluate
from rerank.features.letor import letor_lists
from rerank.lists.folds import FoldsData
from rerank.lists.view import Lists
from rerank.models.load import load_model
from rerank.models.scorer import score_lists
from rerank.retrieval.fuse import fuse
from rerank.retrieval.runs import read_run
from tests.builders import make_lists, make_model, write_features
from tests.experiments.settings import write_experiment


def write_config(folder: Path, **changes: Any) -> str:
    return write_experiment(folder, base={"monitor": "nDCG"}, **changes)


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    make_model(tmp_path / "model")
    return make_lists(tmp_path)


def test_the_first_stage_and_mixtures_are_rows(lists: Lists, tmp_path: Path) -> None:
    """The first stage as deep as it was reranked; mixtures by validation's shares."""
    assert experiment([write_config(tmp_path, first_stage="mix", baseline="first stage")]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(results["table"]) == ["first stage", "ListNet", "ListNet + first stage"]
    assert all(row["cells"] == row["wanted"] == 3 for row in results["table"].values())
    assert set(results["against"].values()) == {"first stage"} and results["comparisons"] == 4
    first = {query: ranking[:4] for query, ranking in lists.run().items()}
    found: dict[str, list[float]] = {"first stage": [], "ListNet + first stage": []}
    for cell in results["cells"]:
        if cell["method"] != "ListNet":
            continue
        folder = tmp_path / "out" / cell["folder"]
        weight = json.loads((folder / "results.json").read_text())["first_stage_weight"]
        model = read_run(folder / "test.trec")
        reranked = {query: first[query] for query in model}
        assert lists.qrels is not None
        qrels = {query: lists.qrels[query] for query in model}
        mixed = fuse([reranked, model], [weight, 1 - weight])
        found["ListNet + first stage"].append(evaluate(mixed, qrels, "nDCG").mean["nDCG"])
        found["first stage"].append(evaluate(reranked, qrels, "nDCG").mean["nDCG"])
    for name, values in found.items():
        assert results["table"][name]["values"]["nDCG"]["mean"] == pytest.approx(np.mean(values), abs=1e-6)
    assert "the share that validation chose" in results["caption"]
    assert experiment([write_config(tmp_path)]) == 0, "the same cells, other rows"
    assert list(json.loads((tmp_path / "out" / "results.json").read_text())["table"]) == ["first stage", "ListNet"]
    assert experiment([write_config(tmp_path, first_stage="hide")]) == 0
    assert list(json.loads((tmp_path / "out" / "results.json").read_text())["table"]) == ["ListNet"]


def test_the_first_stage_is_of_the_first_method_that_has_one(lists: Lists, tmp_path: Path) -> None:
    """Networks of feature vectors of the same queries have none."""
    file = write_features(tmp_path / "features.txt", lists.lengths.tolist())
    names = iter(lists.query_ids)
    of = {f"qid:0{number}": f"qid:{name}" for number, name in enumerate(names)}
    rows = [line.split(" ", 2) for line in file.read_text().splitlines()]
    file.write_text("".join(f"{grade} {of[query]} {rest}\n" for grade, query, rest in rows))
    letor_lists(file).save(tmp_path / "features")
    features = {"loss": "ListNet", "data.lists": str(tmp_path / "features"), "model": "MLP"}
    methods = {"features": {"set": features}, "texts": {"set": {"loss": "ListNet"}}}
    assert experiment([write_config(tmp_path, first_stage="mix", methods=methods)]) == 0
    table = json.loads((tmp_path / "out" / "results.json").read_text())["table"]
    assert set(table) == {"first stage", "features", "texts", "texts + first stage"}


def test_what_was_chosen_is_beside_its_start(lists: Lists, tmp_path: Path) -> None:
    """In the second table and in the results: the mean over cells of what was measured before the first step."""
    assert experiment([write_config(tmp_path, folds=[1, 2])]) == 0
    cells = json.loads((tmp_path / "out" / "results.json").read_text())["cells"]
    starts, chosen = [], []
    for cell in cells:
        folder = tmp_path / "out" / cell["folder"]
        if cell["method"] != "ListNet":
            assert cell["start"] == {}
            continue
        values = json.loads((folder / "results.json").read_text())["validation"]["start"]["mean"]
        assert cell["start"] == {"nDCG": pytest.approx(values["nDCG"], abs=1e-12)}
        starts.append(values["nDCG"])
        chosen.append(cell["validation"]["nDCG"])
    row = next(
        line for line in (tmp_path / "out" / "table.md").read_text().splitlines() if line.startswith("| ListNet | 1")
    )
    assert row.split("|")[4:6] == [f" {np.mean(chosen):.4f} ", f" {np.mean(starts):.4f} "]


def test_what_the_folds_rank_is_a_column_out_of_fold(lists: Lists, tmp_path: Path) -> None:
    """Of each query the scores of the one model that has not seen it: docs/lists.md adds them so."""
    data = {"class_path": "FoldsData", "init_args": {"lists": str(tmp_path / "lists"), "folds": 3}}
    assert experiment([write_experiment(tmp_path, base={"data": data}, first_stage="hide")]) == 0
    folders = sorted((tmp_path / "out" / "cells" / "ListNet").glob("fold-*/seed-42/point-*"))
    (tmp_path / "folds.trec").write_text("".join((folder / "test.trec").read_text() for folder in folders))
    assert main(["add", f"--lists={tmp_path / 'lists'}", f"--run=ce={tmp_path / 'folds.trec'}"]) == 0
    for fold, folder in enumerate(folders, 1):
        tested = FoldsData(str(tmp_path / "lists"), fold, 3).splits(42).test
        assert tested is not None
        model = load_model(folder / "best", mix=False)
        scores = score_lists(model, model.inputs(tested), tested)
        np.testing.assert_allclose(tested.column("ce"), scores, rtol=1e-5, atol=1e-5)


def test_first_stage_row_breaks_ties_as_evaluate_does(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    frame = make_lists(tmp_path / "made").to_dataframe()
    Lists.from_dataframe(frame.assign(bm25=frame.bm25 // 4)).save(tmp_path / "lists")
    assert experiment([write_config(tmp_path)]) == 0
    table = json.loads((tmp_path / "out" / "results.json").read_text())["table"]
    found = rerank.evaluate(Lists.open(tmp_path / "lists").to_rerank(4), ["bm25"], "nDCG AP")
    for measure in ("nDCG", "AP"):
        assert table["first stage"]["values"][measure]["mean"] == pytest.approx(found["bm25", measure])
