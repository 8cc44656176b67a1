"""The training configurations for text under configs/, and their way on real lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ir_measures
import pytest
from ir_measures import AP, RR, nDCG

from rerank.commands.cli import main
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.retrieval import read_run
from rerank.settings.configs import read_config
from rerank.training.configuration import check
from tests.builders import make_lists, train
from tests.conftest import ROOT

FOLDERS = ("msmarco", "recipes", "scifact")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / "configs" / folder).glob("*.yaml"))]
CONFIGS = [path for path in FILES if "methods" not in read_config(path)]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_it_is_a_training_configuration_that_says_how_to_run_it(path: Path) -> None:
    check([f"--config={path}"])
    assert f"--config {path.relative_to(ROOT)}" in path.read_text()
    if path.parent.name == "msmarco":
        assert read_config(path)["output"] == f"runs/msmarco-{path.stem}"


def test_ms_marco_recipes_differ_in_the_loss_alone() -> None:
    configs: list[dict[str, Any]] = [read_config(p) for p in CONFIGS if p.parent.name == "msmarco"]
    losses = [json.dumps(config.pop("loss")) for config in configs]
    assert len(set(losses)) == len(losses) == 7
    for config in configs:
        config.pop("output")
        assert config == configs[0]


@pytest.mark.parametrize("path", [p for p in CONFIGS if p.parent.name == "msmarco"], ids=lambda path: path.stem)
def test_the_ms_marco_recipe_trains(path: Path, tiny_model: Path, tmp_path: Path) -> None:
    """Two steps on small lists; the loss is finite, and what was trained is measured."""
    lists = make_lists(tmp_path / "train")
    words = [f"--data.train={lists.store.folder}", "--data.test=null", "--data.validation_share=0.3"]
    words += [f"--model.name={tiny_model}", "--epochs=1", "--steps_per_epoch=2", "--model.document_length=64"]
    measures = train([f"--config={path}", *words, f"--output={tmp_path / 'run'}"])
    assert 0 < measures["validation"]["RR@10"] <= 1
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [0 < step["loss"] < 1000 for step in logged if "loss" in step] == [True, True]


def test_dl19_is_scored_and_measured_as_trec_does(shared_data: Path, tiny_model: Path, tmp_path: Path) -> None:
    """The real lists of the deep-learning track: relevance means grade 2 or more for AP and RR."""
    folder = shared_data / "dl19"
    words = ["--records", f"{folder}/BM25.json", "--qrels", str(folder / "qrels"), "--depth", "10"]
    assert main(["retrieve", *words, "--output", str(tmp_path / "dl19")]) == 0
    model = tmp_path / "model"
    CrossEncoder(str(tiny_model), query_length=32, document_length=90).save(model)
    words = ["--model", str(model), "--lists", str(tmp_path / "dl19"), "--output", str(tmp_path / "run.trec")]
    assert main(["rerank", *words]) == 0
    run = read_run(tmp_path / "run.trec")
    first = read_run(folder / "BM25.json")
    assert {q: {d for d, _ in ranked} for q, ranked in run.items()} == {
        q: {d for d, _ in ranked[:10]} for q, ranked in first.items()
    }
    assert any([d for d, _ in run[q]] != [d for d, _ in first[q][:10]] for q in run), "in the model's order"
    measures = [nDCG @ 10, AP(rel=2), RR(rel=2)]
    words = ["--qrels", str(folder / "qrels"), "--runs", str(tmp_path / "run.trec"), "--json", str(tmp_path / "t.json")]
    assert main(["evaluate", *words, "--measures", " ".join(map(str, measures))]) == 0
    found = {row["measure"]: row["mean"] for row in json.loads((tmp_path / "t.json").read_text())["rows"]}
    qrels = list(ir_measures.read_trec_qrels(str(folder / "qrels")))
    theirs = ir_measures.calc_aggregate(measures, qrels, ir_measures.read_trec_run(str(tmp_path / "run.trec")))
    for measure, value in theirs.items():
        assert found[str(measure)] == pytest.approx(value, abs=1e-9)
