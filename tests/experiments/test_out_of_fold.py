"""Columns of scores out of fold: no score comes from a model that has seen the query, or one line says why not."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rerank.collections import open_collection
from rerank.commands.cli import main
from rerank.commands.experiment import experiment
from rerank.errors import UserError
from rerank.experiments.out_of_fold import add_out_of_fold
from rerank.lists import Lists, build_lists
from rerank.lists.folds import fold_of
from rerank.models.contract import add_to_contract
from rerank.models.load import load_model
from rerank.models.score import score_lists
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.retrieval import Scored
from rerank.scoring import parts as scoring
from rerank.scoring.in_sample import remember, shared_queries
from tests.builders import make_lists, make_lists_with_added, make_model, random_run, write_collection

ENCODER = {"class_path": "CrossEncoder", "init_args": {"name": "model", "query_length": 8, "document_length": 16}}
NETWORK = {"class_path": "MLP", "init_args": {"hidden": [4], "columns": ["bm25"]}}


def run_folds(folder: Path, **changes: Any) -> Path:
    """An experiment over three folds of the lists folder there; returns its own folder."""
    config = {
        "output": str(folder / "out"),
        "base": {
            "data": {"class_path": "FoldsData", "init_args": {"lists": str(folder / "lists"), "folds": 3, "depth": 2}},
            "epochs": 1,
            "batch_size": 4,
            "precision": "fp32",
            "optimization": {"head_lr": 0.5},
        },
        "folds": [1, 2, 3],
        "methods": {"network": {"set": {"loss": "ListNet", "model": NETWORK}}},
        "first_stage": "mix",
        "jobs": 1,
    }
    (folder / "experiment.yaml").write_text(yaml.safe_dump(config | changes))
    assert experiment([f"--config={folder / 'experiment.yaml'}"]) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three cross-encoders over lists of two candidates, beside which there are added ones."""
    folder = tmp_path_factory.mktemp("folds")
    make_lists_with_added(folder)
    make_model(folder / "model")
    model = ENCODER | {"init_args": ENCODER["init_args"] | {"name": str(folder / "model")}}  # type: ignore[operator]
    still = {
        "loss": "SmoothINDCG",
        "model": model,
        "data.init_args.validation": False,
    }  # or all could stay at the start
    run_folds(folder, methods={"SmoothI | 1": {"set": still}}, first_stage="show")
    return folder


@pytest.fixture
def copied(done: Path, tmp_path: Path) -> Path:
    """The same experiment elsewhere, with the lists where they were."""
    shutil.copytree(done / "out", tmp_path / "moved")
    shutil.copytree(done / "lists", tmp_path / "lists")
    return tmp_path


def cells(output: Path) -> dict[int, Path]:
    """The run folder of each fold."""
    found = {}
    for cell in json.loads((output / "results.json").read_text())["cells"]:
        if cell["tried"]:
            found[cell["fold"]] = output / cell["folder"]
    return found


def test_every_score_is_of_the_model_that_did_not_see_the_query(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "PAIRS", 10)  # several parts a fold
    words = ["--lists", str(copied / "lists"), "--out-of-fold", str(copied / "moved"), "--name", "ce"]
    assert main(["add", *words]) == 0
    lists = Lists.open(copied / "lists").with_added()
    found, judged = lists.column("ce"), [query for query in lists.query_ids if (lists.qrels or {}).get(query)]
    assert judged == lists.query_ids and lists.store.added.any()
    testing = fold_of(lists.query_ids, 3, 0)
    others = np.zeros((3, lists.size), dtype=np.float32)
    for fold, folder in cells(copied / "moved").items():
        model = load_model(folder / "best", mix=False)
        assert isinstance(model, CrossEncoder)
        assert shared_queries(lists.select(np.flatnonzero(testing == fold - 1)), folder / "best") == []
        others[fold - 1] = score_lists(model, model.inputs(lists), lists)
    of = np.repeat(testing, lists.lengths)
    np.testing.assert_allclose(found, others[of, np.arange(lists.size)], rtol=0, atol=1e-5)
    assert (np.abs(others[0] - others[1]) > 1e-3).any(), "which model it is makes a difference"
    columns = copied / "lists" / "columns"
    assert sorted(path.name for path in columns.iterdir()) == ["bm25.arrow", "ce.arrow"]
    before = (columns / "ce.arrow").read_bytes()
    assert main(["add", *words]) == 0, "it is there already"
    Lists.open(copied / "lists").store.drop_column("ce")
    assert main(["add", *words]) == 0
    assert (columns / "ce.arrow").read_bytes() == before
    assert "SmoothI_1" not in Lists.open(copied / "lists").store.column_names


def test_the_column_is_called_after_the_method(copied: Path) -> None:
    path = copied / "moved" / "results.json"
    path.write_text(path.read_text().replace('"folder": "cells/', '"folder": "/once/here/cells/'))  # as they once were
    covered = add_out_of_fold(copied / "lists", copied / "moved")
    assert covered.candidates[0] == covered.candidates[1] and covered.added[0] == covered.added[1] > 0
    store = Lists.open(copied / "lists").store
    assert store.entry("SmoothI_1").made["model"] == "moved: SmoothI | 1, seed 42, out of fold"


def test_other_lists_of_the_same_queries_are_scored(copied: Path, done: Path) -> None:
    """Deeper ones, say: what counts is which queries the models have seen."""
    source = open_collection(f"beir:{done / 'c'}/test")
    build_lists(source, random_run(f"beir:{done / 'c'}/test", [9] * 12, seed=4), copied / "deep")
    covered = add_out_of_fold(copied / "deep", copied / "moved", "ce")
    assert covered.candidates == (9 * 12, 9 * 12)


def lose(path: str) -> Callable[[Path], None]:
    """Remove files of the copied experiment."""

    def change(folder: Path) -> None:
        for found in list((folder / "moved").glob(path)):
            shutil.rmtree(found) if found.is_dir() else found.unlink()

    return change


def other_texts(folder: Path) -> None:
    shutil.rmtree(folder / "lists")
    make_lists(folder, seed=7)


def fewer_folds(folder: Path) -> None:
    path = folder / "moved" / "results.json"
    results = json.loads(path.read_text())
    results["cells"] = [cell for cell in results["cells"] if cell["fold"] != 2]
    path.write_text(json.dumps(results))


def failed_fold(folder: Path) -> None:
    path = folder / "moved" / "results.json"
    results = json.loads(path.read_text())
    results["failed"] = [{"method": "SmoothI | 1", "fold": 2, "seed": 42}]
    path.write_text(json.dumps(results))


def long_memory(folder: Path) -> None:
    """As of a model that began as one which had been trained on all of them."""
    add_to_contract(cells(folder / "moved")[2] / "best", remember(Lists.open(folder / "lists")))


def broken_results(folder: Path) -> None:
    (folder / "moved" / "results.json").write_text('{"cells": [{}]}')


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (lose("results.json"), [], "no finished experiment"),
        (broken_results, [], "results.json: damaged"),
        (lose("cells/*/fold-2/*/*/best"), [], "has no model"),
        (lose("cells/*/fold-2/*/*/measures.json"), [], "is not finished"),
        (failed_fold, [], "fold 2 of SmoothI | 1, seed 42, failed"),
        (fewer_folds, [], "no fold tests 4 of 12 queries"),
        (other_texts, [], "has another text than in the experiment's lists"),
        (long_memory, [], "was trained on 4 of the 4 queries that it tests"),
        (None, ["--method", "Smooth"], "no method 'Smooth'"),
        (None, ["--seed", "7"], "no seed 7"),
        (None, ["--name", "bm25"], "has a column bm25 already, made from something else"),
        (None, ["--in-sample"], "--in-sample: cannot be combined with --out-of-fold"),
        (None, ["--model", "x"], "--model: cannot be combined with --out-of-fold"),
    ],
)
def test_what_gives_no_column(
    copied: Path,
    change: Callable[[Path], None] | None,
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if change is not None:
        change(copied)
    before = sorted((copied / "lists").rglob("*"))
    assert main(["add", "--lists", str(copied / "lists"), "--out-of-fold", str(copied / "moved"), *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("rerank: error: ") and message in lines[0], lines
    assert sorted((copied / "lists").rglob("*")) == before


def test_one_of_several_methods_and_seeds_is_chosen(tmp_path: Path) -> None:
    make_lists(tmp_path)
    settings = {"loss": "ListNet", "model": NETWORK}
    output = run_folds(tmp_path, methods={"a": {"set": settings}, "b": {"set": settings}}, seeds=[1, 2])
    with pytest.raises(UserError, match="methods a, b; choose one by --method"):
        add_out_of_fold(tmp_path / "lists", output)
    with pytest.raises(UserError, match="seeds 1, 2; choose one by --seed"):
        add_out_of_fold(tmp_path / "lists", output, method="b")
    for seed in (1, 2):
        add_out_of_fold(tmp_path / "lists", output, f"b{seed}", method="b", seed=seed)
    lists = Lists.open(tmp_path / "lists")
    assert (lists.column("b1") != lists.column("b2")).any()


def test_regraded_lists_are_no_longer_those_of_the_experiment(tmp_path: Path) -> None:
    make_lists(tmp_path)
    output = run_folds(tmp_path)
    source = open_collection(f"beir:{tmp_path / 'collection'}/test")
    qrels = {query: dict(judged) for query, judged in (source.qrels() or {}).items()}
    query = next(iter(qrels))
    qrels[query] = {document: 1 for document in qrels[query]} | {"d1": 1, "d2": 1}
    lengths = [20, 1, 7, 13, 20, 2, 16, 5, 20, 11, 3, 18]
    run = random_run(f"beir:{tmp_path / 'collection'}/test", lengths)
    build_lists(source, run, tmp_path / "lists", qrels=qrels, replace=True)
    with pytest.raises(UserError, match=r"lists' (grades|qrels) changed; run the experiment again"):
        add_out_of_fold(tmp_path / "lists", output)


def test_an_experiment_without_folds_is_refused(tmp_path: Path) -> None:
    """One that has nothing to test on has no cells in its results; another has no folds."""
    make_lists(tmp_path)
    name = write_collection(tmp_path / "others", seed=7)
    for path in (tmp_path / "others" / "queries.jsonl", tmp_path / "others" / "qrels" / "test.tsv"):
        path.write_text(re.sub(r"\bq(?=\d)", "t", path.read_text()))
    run = {query.id: [Scored("d1", 1.0), Scored("d2", 0.5)] for query in open_collection(name).queries()}
    build_lists(open_collection(name), run, tmp_path / "test")
    data = {"train": str(tmp_path / "lists"), "test": str(tmp_path / "test")}
    base = {"data": {"class_path": "ListsData", "init_args": data}, "epochs": 1, "batch_size": 4}
    output = run_folds(tmp_path, folds=None, base=base)
    with pytest.raises(UserError, match="has no folds, so that its model has seen all training queries"):
        add_out_of_fold(tmp_path / "lists", output)


@pytest.mark.parametrize("told", [False, True])
def test_queries_of_one_text_share_a_fold(tmp_path: Path, told: bool) -> None:
    """NFCorpus has such queries: folds that part them are refused, as a model would be tested on what it has seen."""
    name = write_collection(tmp_path / "c")
    queries = tmp_path / "c" / "queries.jsonl"
    records = [json.loads(line) for line in queries.read_text().splitlines()]
    folds = fold_of([record["_id"] for record in records], 3, 0)
    twin = int(np.flatnonzero(folds != folds[0])[0])
    records[twin]["text"] = records[0]["text"].upper()
    queries.write_text("".join(json.dumps(record) + "\n" for record in records))
    build_lists(open_collection(name), random_run(name, [5] * 12), tmp_path / "lists")
    if not told:
        add_out_of_fold(tmp_path / "lists", run_folds(tmp_path))
        return
    ids = [record["_id"] for record in records]
    (tmp_path / "folds.json").write_text(json.dumps([[ids[i] for i in np.flatnonzero(folds == k)] for k in range(3)]))
    data = {"lists": str(tmp_path / "lists"), "folds": 3, "depth": 1, "assignment": str(tmp_path / "folds.json")}
    base = {"data": {"class_path": "FoldsData", "init_args": data}, "epochs": 1, "batch_size": 4}
    output = run_folds(tmp_path, base=base)
    with pytest.raises(UserError, match=r"was (trained|validated) on the texts of 1 queries that it tests, e\.g\."):
        add_out_of_fold(tmp_path / "lists", output)
