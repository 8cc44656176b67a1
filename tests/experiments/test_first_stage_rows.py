"""Tables have rows of the first stage, alone and interpolated with each method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rerank
from rerank.commands.experiment import experiment
from rerank.lists.view import Lists
from rerank.retrieval.fuse import fuse
from rerank.retrieval.runs import read_run
from tests.builders import make_lists, make_model
from tests.evaluation.scored import evaluate
from tests.experiments.settings import write_experiment


def write_config(folder: Path, **changes: Any) -> str:
    return write_experiment(folder, base={"monitor": "nDCG"}, **changes)


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    make_model(tmp_path / "model")
    return make_lists(tmp_path)


def test_first_stage_and_interpolations_are_rows(lists: Lists, tmp_path: Path) -> None:
    """The first stage is as deep as it was reranked; weights are those that validation chose."""
    assert experiment([write_config(tmp_path, first_stage="interpolate", baseline="first stage")]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(results["table"]) == ["first stage", "ListNet", "ListNet + first stage"]
    assert all(row["found"] == row["wanted"] == 3 for row in results["table"].values())
    assert {one["against"] for one in results["differences"]} == {"first stage"} and len(results["differences"]) == 4
    first = {query: ranking[:4] for query, ranking in lists.run().items()}
    found: dict[str, list[float]] = {"first stage": [], "ListNet + first stage": []}
    for trial in results["trials"]:
        if trial["method"] != "ListNet":
            continue
        folder = tmp_path / "out" / trial["folder"]
        weight = json.loads((folder / "results.json").read_text())["first_stage_weight"]
        model = read_run(folder / "test.trec")
        reranked = {query: first[query] for query in model}
        assert lists.qrels is not None
        qrels = {query: lists.qrels[query] for query in model}
        mixed = fuse([reranked, model], [weight, 1 - weight])
        found["ListNet + first stage"].append(evaluate(mixed, qrels, "nDCG").mean["nDCG"])
        found["first stage"].append(evaluate(reranked, qrels, "nDCG").mean["nDCG"])
    for name, values in found.items():
        assert results["table"][name]["means"]["nDCG"] == pytest.approx(np.mean(values), abs=1e-6)
    assert "the weight that validation chose" in results["caption"]
    assert experiment([write_config(tmp_path)]) == 0, "the same trials, other rows"
    assert list(json.loads((tmp_path / "out" / "results.json").read_text())["table"]) == ["first stage", "ListNet"]
    assert experiment([write_config(tmp_path, first_stage="hide")]) == 0
    assert list(json.loads((tmp_path / "out" / "results.json").read_text())["table"]) == ["ListNet"]


def test_first_stage_row_breaks_ties_as_evaluate_does(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    frame = make_lists(tmp_path / "made").to_dataframe()
    Lists.from_dataframe(frame.assign(bm25=frame.bm25 // 4)).save(tmp_path / "lists")
    assert experiment([write_config(tmp_path)]) == 0
    table = json.loads((tmp_path / "out" / "results.json").read_text())["table"]
    found = rerank.evaluate(Lists.open(tmp_path / "lists").to_rerank(4), ["bm25"], "nDCG AP")
    for measure in ("nDCG", "AP"):
        assert table["first stage"]["means"][measure] == pytest.approx(found["bm25", measure])
